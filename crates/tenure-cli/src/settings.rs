//! What is meant: everything checked once, before anything is begun.

use std::ffi::OsString;
use std::time::Duration;

use tenure::cron::{Interrupted, Misfire, Schedule};
use tenure::store::{Namespace, Tickets};
use tenure::{Label, LimitError, ResourceName, Timing};

use crate::args::{self, Restart};
use crate::exit::Failure;
use crate::place::Place;
use crate::reading::Reading;

/// A command to be run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) resource: ResourceName,
    pub(crate) duty: Duty,
    pub(crate) tickets: Tickets,
    pub(crate) timing: Timing,
    /// How long the first ownership may take to come.
    pub(crate) wait: Option<Duration>,
    pub(crate) label: Option<Label>,
    pub(crate) priority: i32,
    pub(crate) metadata: Option<String>,
    pub(crate) again: Again,
    pub(crate) restart: Restart,
    pub(crate) place: Place,
    /// Whether a store that is not there yet is waited for.
    pub(crate) waits_for_store: bool,
    pub(crate) namespace: Namespace,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// What is done with an ownership.
#[derive(Debug)]
pub(crate) enum Duty {
    /// The command is run, and its end is the end of it.
    Command,
    /// The command is run at set times.
    Cron(Cron),
    /// The command is run once, by one of all.
    Once { name: String, goes_on: bool },
}

/// A job that runs at set times.
#[derive(Debug)]
pub(crate) struct Cron {
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) schedule: Schedule,
    pub(crate) misfire: Misfire,
    pub(crate) jitter: Duration,
    pub(crate) interrupted: Interrupted,
}

impl Run {
    pub(crate) fn meant_by(typed: args::Run) -> Result<Self, Failure> {
        let run = Self::new(&typed.resource, Duty::Command, typed.competing, typed.at, typed.command)?;
        Ok(Self {
            tickets: Tickets::new(typed.tickets)?,
            wait: typed.wait,
            again: Again::meant_by(typed.once, typed.exit_on_loss),
            restart: typed.restart,
            ..run
        })
    }

    pub(crate) fn meant_by_cron(typed: args::Cron) -> Result<Self, Failure> {
        let (spec, name) = (typed.spec.unwrap_or_default(), typed.job.unwrap_or_default());
        named(&name, ResourceName::new)?;
        let cron = Cron {
            schedule: Schedule::new(&spec)?.in_zone(&typed.tz)?,
            misfire: typed.misfire,
            jitter: typed.jitter,
            interrupted: match typed.interrupted {
                args::Interrupted::Leave => Interrupted::Leave,
                args::Interrupted::Again => Interrupted::Again,
            },
            name,
            spec,
        };
        let resource = format!("cron:{}", cron.name);
        Self::new(&resource, Duty::Cron(cron), typed.competing, typed.at, typed.command)
    }

    pub(crate) fn meant_by_once(typed: args::Once) -> Result<Self, Failure> {
        named(&typed.name, ResourceName::new)?;
        let resource = format!("once:{}", typed.name);
        let duty = Duty::Once { name: typed.name, goes_on: typed.go_on };
        let run = Self::new(&resource, duty, typed.competing, typed.at, typed.command)?;
        Ok(Self { wait: typed.wait, ..run })
    }

    fn new(
        resource: &str,
        duty: Duty,
        competing: args::Competing,
        at: args::At,
        command: Vec<OsString>,
    ) -> Result<Self, Failure> {
        let mut words = command.into_iter();
        let program = words.next().ok_or_else(|| Failure::new("there is no command to run"))?;
        let timing = Timing::new(competing.ttl)?;
        Ok(Self {
            resource: named(resource, ResourceName::new)?,
            duty,
            tickets: Tickets::default(),
            timing: competing.grace.map_or(timing, |grace| timing.with_grace(grace)),
            wait: None,
            priority: competing.priority,
            metadata: competing.metadata,
            again: Again::Always,
            restart: Restart::Never,
            label: competing.label.map(|label| named(&label, Label::new)).transpose()?,
            namespace: named(&at.namespace, Namespace::new)?,
            place: Place::find(at.store)?,
            waits_for_store: at.wait_for_store,
            program,
            arguments: words.collect(),
        })
    }
}

/// After which ends of an ownership, other than the command's own, `tenure` competes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// All.
    Always,
    /// Those that were asked for: what is lost ends `tenure`.
    AfterHandOver,
    /// None: the command is started at most once.
    Never,
}

impl Again {
    fn meant_by(once: bool, exit_on_loss: bool) -> Self {
        match (once, exit_on_loss) {
            (true, _) => Self::Never,
            (false, true) => Self::AfterHandOver,
            (false, false) => Self::Always,
        }
    }
}

/// A look at the owners.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) resource: Option<ResourceName>,
    pub(crate) form: Form,
    pub(crate) reading: Reading,
}

/// For whom it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    People,
    Programs,
    /// Those who want to see it change.
    Watchers,
}

impl Status {
    pub(crate) fn meant_by(typed: args::Status) -> Result<Self, Failure> {
        Ok(Self {
            resource: typed.resource.map(|name| named(&name, ResourceName::new)).transpose()?,
            form: match (typed.json, typed.watch) {
                (true, _) => Form::Programs,
                (false, true) => Form::Watchers,
                (false, false) => Form::People,
            },
            reading: Reading::meant_by(typed.at)?,
        })
    }
}

/// Checks a name. An error shows only the beginning of a long one; here it also shows that it does.
pub(crate) fn named<T>(typed: &str, check: fn(&str) -> Result<T, LimitError>) -> Result<T, Failure> {
    check(typed).map_err(|limit| {
        let shown: String = typed.chars().take(SHOWN).collect();
        let said = limit.to_string();
        if shown.len() == typed.len() {
            return Failure::new(said);
        }
        Failure::new(said.replacen(&format!("{shown:?}"), &format!("{:?}", shown.clone() + "\u{2026}"), 1))
    })
}

/// How many characters of a name an error shows.
const SHOWN: usize = 60;
