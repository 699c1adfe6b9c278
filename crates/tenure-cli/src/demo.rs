//! `tenure demo`: real workers on a temporary store, killed and paused by the user or by a script, and checked.

mod lives;
mod script;
mod show;
mod stage;
mod worker;

pub(crate) use self::worker::work;

use self::stage::Stage;
use crate::exit::{Exit, Failure};
use crate::settings::{self, Play};

/// What the workers compete for.
const RESOURCE: &str = "demo";

pub(crate) async fn demo(settings: settings::Demo) -> Result<Exit, Failure> {
    let settings::Demo { timing, workers, play } = settings;
    match play {
        Play::Script { is_planted } => script::play(Stage::build(timing, is_planted).await?, workers).await,
        Play::User => show::show(timing, workers).await,
    }
}
