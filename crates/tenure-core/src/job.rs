//! Jobs: work with occurrences, each claimed once, and what became of it. Plain data; the rules are in `rules`.
//!
//! A job is attached to the resource of its name, and done by the owner of that resource.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::message::{LeaseId, Token};
use crate::names::{Label, LimitError, Plan, ResourceName};

/// How many records of a job are kept; the latest among them for ever.
pub const JOB_RECORDS: usize = 50;
/// An occurrence may be begun so long before the store's wall clock shows it: clocks differ, and a worker whose clock
/// runs further ahead must not use up the future.
pub const HEAD_START: Duration = Duration::from_secs(60);
/// The longest note, in bytes.
const NOTE: usize = 200;

/// Which time of a job is meant: the scheduled time in milliseconds since 1970, or 1 for what is done once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Occurrence(u64);

impl Occurrence {
    /// What is done once has this one only.
    pub const ONCE: Self = Self(1);
    /// The last one: the year 2200, so that every language can hold the number.
    pub const LAST: Self = Self(7_258_118_400_000);

    /// The occurrence at so many milliseconds since 1970.
    ///
    /// # Errors
    /// When that is beyond the year 2200.
    pub fn new(millis: u64) -> Result<Self, LimitError> {
        if millis <= Self::LAST.0 {
            Ok(Self(millis))
        } else {
            let value = alloc::format!("{millis}");
            Err(LimitError::new("occurrence", &value, "before the year 2200, in milliseconds since 1970"))
        }
    }

    /// The same in milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The same as the time since 1970: `SystemTime::UNIX_EPOCH + occurrence.since_epoch()`.
    #[must_use]
    pub const fn since_epoch(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

/// In UTC, as RFC 3339 has it: `2026-03-29T03:00:00Z`.
impl fmt::Display for Occurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_time(self.since_epoch(), f)
    }
}

/// In UTC, as RFC 3339 has it: `2026-03-29T03:00:00.25Z`.
impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_time(self.since_epoch(), f)
    }
}

fn show_time(since_epoch: Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (seconds, micros) = (since_epoch.as_secs(), since_epoch.subsec_micros());
    // From here on a year begins in March, so that a leap day is its last day, and an era has 400 of them.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
    if micros > 0 {
        let fraction = alloc::format!("{micros:06}");
        write!(f, ".{}", fraction.trim_end_matches('0'))?;
    }
    f.write_str("Z")
}

/// What a store's wall clock shows, in microseconds since 1970: for people, and for what is too early. It may step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// The time at which the wall clock shows `micros` since 1970.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// What the wall clock shows, in microseconds since 1970.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The same as the time since 1970: `SystemTime::UNIX_EPOCH + time.since_epoch()`.
    #[must_use]
    pub const fn since_epoch(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// The last occurrence that may be begun now.
    #[must_use]
    pub fn head_start(self) -> Occurrence {
        let ahead = u64::try_from(HEAD_START.as_millis()).unwrap_or(0);
        let millis = (self.0 / 1_000).saturating_add(ahead);
        Occurrence(millis.min(Occurrence::LAST.0))
    }
}

/// What the work had to say at its end: at most 200 bytes of text without control characters. What is longer is cut.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Note(Option<Arc<str>>);

impl Note {
    /// The text, made harmless: a control character becomes a space, and what is beyond 200 bytes is cut off.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut note = String::new();
        for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
            if note.len() + c.len_utf8() > NOTE {
                break;
            }
            note.push(c);
        }
        Self((!note.is_empty()).then(|| note.into()))
    }

    /// The text itself; empty when there was nothing to say.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Who acts as the owner of a resource. Good while the lease lives and holds the ticket under exactly this token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The lease that holds the ticket.
    pub lease: LeaseId,
    /// Of which resource.
    pub resource: ResourceName,
    /// Under which token.
    pub token: Token,
}

/// One step of the job that is attached to the holder's resource: one atomic operation of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobStep {
    /// Who asks.
    pub holder: Holder,
    /// For what.
    pub act: JobAct,
}

/// What the owner does with its job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum JobAct {
    /// Take it up: make it if there is none, and note whom the last owner left in the middle. Repeating it changes
    /// nothing more.
    Attend {
        /// The schedule, for people and for noticing that the name is used with another one.
        plan: Plan,
        /// For a new job, or a new plan: nothing up to here counts as missed. Beyond [`HEAD_START`] it is cut there.
        from: Occurrence,
    },
    /// Claim an occurrence, to run it now.
    Begin(Begin),
    /// Say how the run ended. True also when the lease does not live any more.
    Finish {
        /// Which one.
        occurrence: Occurrence,
        /// How.
        outcome: JobOutcome,
        /// What the work had to say.
        note: Note,
    },
}

/// The claim of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Begin {
    /// Which one.
    pub occurrence: Occurrence,
    /// How many before it nobody claimed, because nobody owned.
    pub missed: u32,
    /// How many before it the owner left out on purpose.
    pub skipped: u32,
    /// Whether the latest one may be run again, by a later owner, if it has failed or was interrupted.
    pub again: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobOutcome {
    /// It came to its end.
    Ran,
    /// It failed.
    Failed,
}

/// What the store says to a step of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum JobSaid {
    /// The owner has taken the job up.
    Attended {
        /// Up to here every occurrence is claimed, or does not count.
        through: Occurrence,
        /// What became of the latest, if there was one.
        latest: Option<JobRecord>,
        /// The plan until now, if it was another.
        replaced: Option<Plan>,
    },
    /// The occurrence is this holder's to run; the same record again if it was already.
    Begun(JobRecord),
    /// Written down; the same record again if it was already.
    Finished(JobRecord),
    /// Not this holder's to run or to finish; nothing changed. What became of the latest, if there was one.
    Taken(Option<JobRecord>),
    /// The occurrence is more than [`HEAD_START`] after the store's wall clock; nothing changed.
    Early,
    /// Nobody has taken up such a job yet; nothing changed.
    Unknown,
    /// The holder is not the owner, or not any more; nothing changed.
    NotOwner,
}

/// What became of an occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobRecord {
    /// Which one.
    pub occurrence: Occurrence,
    /// The how-manieth time it was begun: 1, 2, ...
    pub attempt: u32,
    /// Under which token it was begun the last time.
    pub token: Token,
    /// Under which token it was begun the first time: a repetition keeps the [`key`](Self::key).
    pub key_token: Token,
    /// By whom it was begun the last time.
    pub worker: Label,
    /// When, by the store's wall clock.
    pub began_at: WallTime,
    /// Where it stands.
    pub state: JobState,
    /// How long the run took by the store's clock, once it has ended.
    pub took: Option<Duration>,
    /// How many before it were missed.
    pub missed: u32,
    /// How many before it were left out on purpose.
    pub skipped: u32,
    /// What the work had to say at its end.
    pub note: Note,
}

impl JobRecord {
    /// The idempotency key of the run: the same for every attempt at this occurrence.
    #[must_use]
    pub fn key(&self, job: &ResourceName) -> String {
        alloc::format!("{job}/{}/{}", self.occurrence.as_millis(), self.key_token.0)
    }
}

/// Where an occurrence stands. Only the latest can be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobState {
    /// It was begun, and nobody has said how it ended.
    Running,
    /// It came to its end.
    Ran,
    /// It failed.
    Failed,
    /// Somebody else took the job up, or the next occurrence was begun, before anybody said how it ended.
    Interrupted,
}

impl From<JobOutcome> for JobState {
    fn from(outcome: JobOutcome) -> Self {
        match outcome {
            JobOutcome::Ran => Self::Ran,
            JobOutcome::Failed => Self::Failed,
        }
    }
}

/// How often what has happened to a job since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct JobCounts {
    /// Runs that came to their end.
    pub ran: u64,
    /// Runs that failed, each attempt for itself.
    pub failed: u64,
    /// Runs that were interrupted, each attempt for itself.
    pub interrupted: u64,
    /// Occurrences that nobody claimed, because nobody owned.
    pub missed: u64,
    /// Occurrences that were left out on purpose.
    pub skipped: u64,
}

/// A job as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobView {
    /// Its name, which is that of its resource.
    pub job: ResourceName,
    /// The schedule, as its latest owner has it.
    pub plan: Plan,
    /// Up to here every occurrence is claimed, or does not count.
    pub through: Occurrence,
    /// How often what has happened.
    pub counts: JobCounts,
    /// What became of the latest occurrences, oldest first: up to [`JOB_RECORDS`] where one job is read, the latest
    /// only where all are.
    pub records: Vec<JobRecord>,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_note_is_made_harmless_and_cut_at_a_character() {
        assert_eq!(Note::of("a\nb\u{1b}[0m").as_str(), "a b [0m");
        assert_eq!(Note::of(&"ä".repeat(150)).as_str(), "ä".repeat(100));
        assert_eq!((Note::of(&"x".repeat(200)).as_str().len(), Note::of("")), (200, Note::default()));
    }

    #[test]
    fn times_are_shown_as_rfc_3339_has_them() {
        let shown = |seconds: u64| WallTime::from_micros(seconds * 1_000_000).to_string();

        assert_eq!(shown(0), "1970-01-01T00:00:00Z");
        assert_eq!(shown(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(shown(1_709_251_200), "2024-03-01T00:00:00Z");
        assert_eq!(shown(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(WallTime::from_micros(1_250_000).to_string(), "1970-01-01T00:00:01.25Z");
        assert_eq!(Occurrence::LAST.to_string(), "2200-01-01T00:00:00Z");
    }

    #[test]
    fn a_plan_and_an_occurrence_have_limits() {
        assert!(Plan::new(&"x".repeat(200)).is_ok() && Plan::new("").is_err() && Plan::new("a\nb").is_err());
        assert!(Occurrence::new(7_258_118_400_000).is_ok());
        assert_eq!(
            Occurrence::new(7_258_118_400_001).unwrap_err().to_string(),
            "occurrence \"7258118400001\" is not before the year 2200, in milliseconds since 1970"
        );
    }

    #[test]
    fn the_head_start_is_60_s_and_ends_with_the_last_occurrence() {
        assert_eq!(WallTime::from_micros(5_000_999).head_start().as_millis(), 65_000);
        assert_eq!(WallTime::from_micros(u64::MAX).head_start(), Occurrence::LAST);
    }
}
