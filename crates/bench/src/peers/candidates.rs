//! The candidates that are part of this program: Tenure itself, what people write by hand, and commands that elect.

mod advisory;
mod beaten;
mod command;
mod lease;
mod table;
mod tenure;

use std::time::Duration;

pub(super) use self::command::{WORK, work};
pub(super) use self::table::TABLE;
use super::protocol::serve;
use crate::Failure;

/// The hidden subcommand: `candidate PEER URL TTL_MS SPACE`.
pub(crate) const SUBCOMMAND: &str = "candidate";

/// Is one of them until nobody listens any more.
pub(crate) fn play(words: &[String]) -> Result<(), Failure> {
    let [peer, url, ttl, space] = words else { return Err("a candidate has four words".into()) };
    let ttl = Duration::from_millis(ttl.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match peer.as_str() {
            "tenure" => serve(tenure::Candidate::connect(url, ttl, space).await?).await,
            "advisory" => serve(advisory::Candidate::connect(url).await?).await,
            "table" => serve(table::Candidate::connect(url, ttl).await?).await,
            "lease" => serve(lease::Candidate::connect(url, ttl).await?).await,
            "etcdctl" => serve(command::Candidate::etcdctl(url)).await,
            "run" => serve(command::Candidate::tenure_run(url, ttl, space)?).await,
            other => Err(format!("there is no candidate {other:?}").into()),
        }
    })
}
