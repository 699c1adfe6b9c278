//! What `tenure run`, `cron` and `once` say of an ownership: why they wait for it, and why it ended.

use std::time::Duration;

use tenure::EndReason;
use tenure::types::{WaitReason, Waiting};

use crate::output::{grants_nothing, span};
use crate::place::Place;
use crate::process::Caught;

/// Why there is no ticket.
pub(super) fn reason(waiting: Waiting) -> String {
    match waiting.why {
        WaitReason::Quarantine => grants_nothing(waiting.look_again),
        WaitReason::Unreadable => "its record in the store cannot be read".to_owned(),
        _ => "all its tickets are owned".to_owned(),
    }
}

pub(super) fn waiting(resource: &str, place: &Place, waiting: Waiting) -> String {
    let ahead = match waiting.ahead {
        0 => String::new(),
        ahead => format!("; {ahead} before this one"),
    };
    format!("waiting for `{resource}` on `{place}`: {}{ahead}", reason(waiting))
}

/// Whose silence let a lease run out, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) enum Silence {
    Store(Duration),
    /// This process was stopped, suspended or starved.
    Ours(Duration),
}

/// The end of an ownership. Nothing if the command brought it about, or if it is said with what failed.
pub(super) fn ending(
    resource: &str,
    term: u64,
    ending: EndReason,
    place: &Place,
    silence: Silence,
) -> Option<String> {
    let why = match ending {
        EndReason::Left | EndReason::Finished | EndReason::Failed => return None,
        EndReason::Asked => "an operator asks for a hand-over".to_owned(),
        EndReason::Lowered => "it has fewer tickets now".to_owned(),
        EndReason::Evicted => "an operator took it away".to_owned(),
        EndReason::Expired => match silence {
            Silence::Store(trust) => format!("no renewal was answered by `{place}` for {}", span(trust)),
            Silence::Ours(still) => format!("this process was held up for {}", span(still)),
        },
        EndReason::Gone => format!("`{place}` does not know this lease any more"),
        EndReason::Missing => format!("`{place}` was restarted, and does not know it any more"),
        EndReason::Cloned => "another process uses this lease".to_owned(),
        _ => "it has ended".to_owned(),
    };
    let verb = if ending.is_gentle() { "giving up" } else { "lost" };
    Some(format!("{verb} `{resource}` (term {term}): {why}"))
}

/// What may help against such an end.
pub(super) fn advice(ending: EndReason, trust: Duration, ttl: Duration) -> Option<String> {
    let (trust, ttl) = (span(trust), span(ttl));
    match ending {
        EndReason::Expired => {
            Some(format!("a lease of {ttl} rides out {trust} of silence; for longer, raise `--ttl`"))
        }
        EndReason::Gone => Some(format!("others may own what the store forgot; competing again after {ttl}")),
        _ => None,
    }
}

pub(super) fn stopping(command: &str, pid: i32, limit: Duration, because: Option<Caught>) -> String {
    let because = match because.map(|caught| caught.number) {
        None => String::new(),
        Some(libc::SIGTERM) => " on SIGTERM".to_owned(),
        Some(libc::SIGINT) => " on SIGINT".to_owned(),
        Some(libc::SIGHUP) => " on SIGHUP".to_owned(),
        Some(libc::SIGQUIT) => " on SIGQUIT".to_owned(),
        Some(other) => format!(" on signal {other}"),
    };
    format!("stopping `{command}` (pid {pid}){because}; it has {}", span(limit))
}
