//! `tenure demo`: real workers on a temporary store, killed and paused by the user or by a script, and checked.

mod lives;
mod script;
mod show;
mod stage;
mod worker;

pub(crate) use self::worker::work;

use tenure::Timing;

use self::stage::Stage;
use crate::args;
use crate::exit::{Exit, Failure};

/// What the workers compete for.
const RESOURCE: &str = "demo";

pub(crate) async fn demo(typed: args::Demo) -> Result<Exit, Failure> {
    let timing = Timing::new(typed.ttl)?;
    if typed.script && typed.workers < script::FEWEST {
        let what = format!("the script needs {} workers at least", script::FEWEST);
        return Err(Failure::new(what));
    }
    match typed.script {
        true => script::play(Stage::build(timing, typed.plant).await?, typed.workers).await,
        false => show::show(timing, typed.workers).await,
    }
}
