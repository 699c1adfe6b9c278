//! The state machine of `tenure run`: events go in, effects come out. It does no I/O, so its tests need no store and no
//! process.

use std::process::ExitStatus;

use tenure::EndReason;
use tenure::types::{Grant, WaitReason, Waiting};
use tokio::time::Instant;

use crate::exit::Exit;
use crate::process::Caught;
use crate::settings::{self, Again, Duty};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Competes, and has never owned a ticket.
    Candidate(Wait),
    /// Owned a ticket before; competes again, or pauses before it does.
    Again(Wait),
    /// Owns a ticket; the work has not begun. `is_news`: tell people when it does.
    Granted { term: u64, is_news: bool },
    /// Owns a ticket; the work has begun.
    Working { term: u64 },
    /// Exits as soon as the work has ended.
    Leaving(Leave),
    /// Got no ticket within `--wait`. Holds the store's last answer and when it came.
    TimedOut(Option<(Instant, Waiting)>),
}

/// What is known while there is no ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// The store's latest answer, and when it came.
    pub(super) answer: Option<(Instant, Waiting)>,
    /// The reason for waiting that people were told last.
    told: Option<WaitReason>,
    /// Whether to tell people of the next ownership: there is a terminal, they were told that it waits, or an ownership has
    /// ended before.
    is_news: bool,
}

/// Why `tenure` exits, how fast, and what has happened since it decided to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leave {
    why: Why,
    pace: Pace,
    /// The term of an ownership whose end people were not told yet.
    term: Option<u64>,
    /// How the command ended.
    ended: Option<ExitStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A signal asked it to stop.
    Asked(Caught),
    /// The ownership has ended, and the settings say not to compete again. A signal may have come as well.
    Lost(Option<Caught>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Gentle,
    /// The command has no time left.
    Hurried,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Acquired(Grant),
    /// The store has no ticket now.
    Waiting(Waiting),
    /// The work under the ownership of this term begins.
    Began(u64),
    /// The ownership has ended. Both the campaign and the work report it.
    Ended(EndReason),
    Signal(Caught),
    CommandEnded(ExitStatus),
    /// `--wait` is over.
    WaitOver,
}

/// What to do about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    SayOwns(u64),
    SayEnded(u64, EndReason),
    SayWaiting(Waiting),
    /// Tell the supervisor that this worker waits.
    ShowWaiting,
    /// Tell the supervisor that this worker stops.
    ShowStopping,
    /// Pass a signal on to the command.
    PassOn(i32),
    /// Stop the work, release, leave.
    ShutDown,
}

impl State {
    pub(super) fn new(is_news: bool) -> Self {
        Self::Candidate(Wait { answer: None, told: None, is_news })
    }

    /// The only place where the state changes.
    pub(super) fn handle(&mut self, event: Event, settings: &settings::Run) -> Vec<Effect> {
        let (next, effects) = self.next(event, settings);
        *self = next;
        effects
    }

    fn next(self, event: Event, settings: &settings::Run) -> (Self, Vec<Effect>) {
        match (self, event) {
            (Self::Candidate(wait), Event::Waiting(waiting)) => {
                let (wait, effects) = wait.answered(waiting, !gives_up_at_once(waiting.why, settings));
                (Self::Candidate(wait), effects)
            }
            (Self::Again(wait), Event::Waiting(waiting)) => {
                let (wait, effects) = wait.answered(waiting, true);
                (Self::Again(wait), effects)
            }
            (Self::Candidate(wait), Event::WaitOver) => (Self::TimedOut(wait.answer), Vec::new()),

            (
                Self::Candidate(Wait { is_news, .. }) | Self::Again(Wait { is_news, .. }),
                Event::Acquired(grant),
            ) => (Self::Granted { term: grant.term.0, is_news }, Vec::new()),
            (Self::Leaving(leave), Event::Acquired(grant)) => {
                (Self::Leaving(Leave { term: Some(grant.term.0), ..leave }), Vec::new())
            }

            (
                Self::Candidate(Wait { is_news, .. })
                | Self::Again(Wait { is_news, .. })
                | Self::Granted { is_news, .. },
                Event::Began(term),
            ) => (Self::Working { term }, is_news.then_some(Effect::SayOwns(term)).into_iter().collect()),

            (Self::Granted { term, .. } | Self::Working { term }, Event::Ended(ending)) => {
                let said = Effect::SayEnded(term, ending);
                match is_last(ending, settings) {
                    true => (Self::leaving(Why::Lost(None), None), vec![said, Effect::ShutDown]),
                    false => (Self::Again(Wait { answer: None, told: None, is_news: true }), vec![said]),
                }
            }
            (Self::Leaving(leave), Event::Ended(ending)) => {
                let (leave, effects) = leave.ended(ending, settings);
                (Self::Leaving(leave), effects)
            }
            (Self::Leaving(leave), Event::CommandEnded(status)) => {
                (Self::Leaving(Leave { ended: Some(status), ..leave }), Vec::new())
            }

            (_, Event::Signal(signal)) if !signal.asks_to_stop => {
                // A signal from the terminal has reached the command already.
                (self, (!signal.from_terminal).then_some(Effect::PassOn(signal.number)).into_iter().collect())
            }
            (Self::Leaving(Leave { why: Why::Lost(None), term, .. }), Event::Signal(signal)) => {
                (Self::leaving(Why::Lost(Some(signal)), term), vec![Effect::ShowStopping])
            }
            // After the first signal only SIGINT changes anything: somebody presses Ctrl-C again.
            (Self::Leaving(leave), Event::Signal(signal)) if signal.number == libc::SIGINT => {
                (Self::Leaving(Leave { pace: Pace::Hurried, ..leave }), Vec::new())
            }
            (Self::Candidate(_) | Self::Again(_), Event::Signal(signal)) => {
                (Self::leaving(Why::Asked(signal), None), vec![Effect::ShowStopping, Effect::ShutDown])
            }
            (Self::Granted { term, .. } | Self::Working { term }, Event::Signal(signal)) => {
                (Self::leaving(Why::Asked(signal), Some(term)), vec![Effect::ShowStopping, Effect::ShutDown])
            }

            _ => (self, Vec::new()),
        }
    }

    fn leaving(why: Why, term: Option<u64>) -> Self {
        Self::Leaving(Leave { why, pace: Pace::Gentle, term, ended: None })
    }

    /// Whether the command has no time left.
    pub(super) fn is_hurried(&self) -> bool {
        matches!(self, Self::Leaving(Leave { pace: Pace::Hurried, .. }))
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self, Self::Leaving(_))
    }

    /// The first signal that asked it to stop.
    pub(super) fn asked(&self) -> Option<Caught> {
        match self {
            Self::Leaving(Leave { why: Why::Asked(signal), .. }) => Some(*signal),
            Self::Leaving(Leave { why: Why::Lost(signal), .. }) => *signal,
            _ => None,
        }
    }

    /// The exit code, unless the work has one of its own.
    pub(super) fn exit(&self) -> Option<Exit> {
        match self {
            Self::Leaving(Leave { why: Why::Lost(_), .. }) => Some(Exit::LOST),
            Self::Leaving(Leave { ended: Some(status), .. }) => Some(Exit::of(*status)),
            Self::Leaving(Leave { why: Why::Asked(signal), .. }) => Some(Exit::by_signal(signal.number)),
            _ => None,
        }
    }
}

impl Wait {
    /// Tells people the reason for waiting, once; not at all if the settings say not to wait.
    fn answered(self, waiting: Waiting, waits: bool) -> (Self, Vec<Effect>) {
        let mut effects = vec![Effect::ShowWaiting];
        let mut wait = Self { answer: Some((Instant::now(), waiting)), ..self };
        if waits && waiting.why != WaitReason::Turn && self.told != Some(waiting.why) {
            (wait.told, wait.is_news) = (Some(waiting.why), true);
            effects.push(Effect::SayWaiting(waiting));
        }
        (wait, effects)
    }
}

impl Leave {
    fn ended(self, ending: EndReason, settings: &settings::Run) -> (Self, Vec<Effect>) {
        let why = match self.why {
            Why::Asked(signal) if is_last(ending, settings) => Why::Lost(Some(signal)),
            why => why,
        };
        let said = self.term.map(|term| Effect::SayEnded(term, ending));
        (Self { why, term: None, ..self }, said.into_iter().collect())
    }
}

/// Whether the settings say not to wait for the first ownership.
fn gives_up_at_once(why: WaitReason, settings: &settings::Run) -> bool {
    let goes_on = matches!(settings.duty, Duty::Once { goes_on: true, .. });
    settings.wait.is_some_and(|wait| wait.is_zero()) || (goes_on && why == WaitReason::Taken)
}

/// Whether `tenure` exits after an ownership that ended this way.
fn is_last(ending: EndReason, settings: &settings::Run) -> bool {
    match settings.again {
        _ if matches!(ending, EndReason::Left | EndReason::Finished) => false,
        Again::Always => false,
        Again::AfterHandOver => !ending.is_gentle(),
        Again::Never => true,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use clap::{ArgMatches, Parser};
    use tenure::types::{Term, Ticket, Token};

    use super::*;
    use crate::args::Args;
    use crate::config::Found;
    use crate::settings::Command;

    fn settings(options: &[&str]) -> settings::Run {
        let words = [&["tenure", "run", "job", "--store", "sqlite:x"][..], options, &["--", "true"]].concat();
        let command = Command::from_args(Args::parse_from(words), &ArgMatches::default(), &Found::default());
        let Ok(Command::Run(run)) = command else { panic!("it is `run`") };
        *run
    }

    /// The state after these events, and the effects of the last.
    fn after(events: &[Event], options: &[&str]) -> (State, Vec<Effect>) {
        let (mut state, mut effects) = (State::new(false), Vec::new());
        for event in events {
            effects = state.handle(*event, &settings(options));
        }
        (state, effects)
    }

    const GRANT: Grant = Grant { ticket: Ticket(0), term: Term(7), token: Token(9) };
    const ACQUIRED: Event = Event::Acquired(GRANT);
    const BEGAN: Event = Event::Began(7);
    const LOST: Event = Event::Ended(EndReason::Expired);
    const TAKEN: Event =
        Event::Waiting(Waiting { ahead: 1, look_again: Duration::ZERO, why: WaitReason::Taken });

    fn signal(number: i32) -> Event {
        Event::Signal(Caught { number, from_terminal: false, asks_to_stop: true })
    }

    #[test]
    fn an_ownership_is_announced_only_after_a_wait_or_a_loss() {
        assert_eq!(after(&[ACQUIRED, BEGAN], &[]), (State::Working { term: 7 }, vec![]));
        assert_eq!(after(&[BEGAN, ACQUIRED], &[]), (State::Working { term: 7 }, vec![]));

        let (state, effects) = after(&[TAKEN, ACQUIRED, BEGAN], &[]);
        assert_eq!((state, effects), (State::Working { term: 7 }, vec![Effect::SayOwns(7)]));
        assert_eq!(after(&[ACQUIRED, BEGAN, LOST, BEGAN], &[]).1, [Effect::SayOwns(7)]);
    }

    #[test]
    fn the_reason_for_waiting_is_told_once() {
        assert_eq!(after(&[TAKEN], &[]).1.len(), 2);
        assert_eq!(after(&[TAKEN, TAKEN], &[]).1, [Effect::ShowWaiting]);
        assert_eq!(after(&[TAKEN], &["--wait", "0s"]).1, [Effect::ShowWaiting]);
    }

    #[test]
    fn an_end_is_told_once_and_leaves_only_if_it_is_to_be_the_last() {
        let said = Effect::SayEnded(7, EndReason::Expired);

        let (state, effects) = after(&[ACQUIRED, BEGAN, LOST], &[]);
        assert_eq!((state.exit(), effects), (None, vec![said]));
        assert_eq!(after(&[ACQUIRED, BEGAN, LOST, LOST], &[]).1, []);

        let (state, effects) = after(&[ACQUIRED, BEGAN, LOST], &["--exit-on-loss"]);
        assert_eq!((state.exit(), effects), (Some(Exit::LOST), vec![said, Effect::ShutDown]));
    }

    #[test]
    fn the_first_signal_stops_gently_and_only_a_second_sigint_hurries() {
        let (state, effects) = after(&[ACQUIRED, BEGAN, signal(libc::SIGTERM)], &[]);
        assert_eq!(effects, [Effect::ShowStopping, Effect::ShutDown]);
        assert_eq!((state.exit(), state.is_hurried()), (Some(Exit::by_signal(libc::SIGTERM)), false));

        let twice = |number| after(&[BEGAN, signal(libc::SIGINT), signal(number)], &[]).0.is_hurried();
        assert!(twice(libc::SIGINT) && !twice(libc::SIGTERM));
        assert!(!after(&[BEGAN, LOST, signal(libc::SIGINT)], &["--once"]).0.is_hurried());
    }

    #[test]
    fn the_code_is_that_of_the_command_that_ended_since_the_signal() {
        let ended = |code: i32| Event::CommandEnded(ExitStatus::from_raw(code << 8));

        let (state, _) = after(&[BEGAN, ended(3), signal(libc::SIGTERM)], &[]);
        assert_eq!(state.exit(), Some(Exit::by_signal(libc::SIGTERM)));
        let (state, _) = after(&[BEGAN, signal(libc::SIGTERM), ended(3)], &[]);
        assert_eq!(state.exit(), Some(Exit::of(ExitStatus::from_raw(3 << 8))));
        let (state, _) = after(&[BEGAN, signal(libc::SIGTERM), LOST, ended(3)], &["--exit-on-loss"]);
        assert_eq!(state.exit(), Some(Exit::LOST));
    }

    #[test]
    fn only_the_first_ownership_can_be_too_long_in_coming() {
        assert!(matches!(after(&[TAKEN, Event::WaitOver], &[]).0, State::TimedOut(Some(_))));
        assert_eq!(after(&[ACQUIRED, Event::WaitOver], &[]).0, State::Granted { term: 7, is_news: false });
        assert!(matches!(after(&[BEGAN, LOST, Event::WaitOver], &[]).0, State::Again(_)));
    }
}
