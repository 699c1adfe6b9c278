//! What is meant: everything checked once, before anything is begun.

use std::ffi::OsString;
use std::time::Duration;

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

impl Run {
    pub(crate) fn meant_by(typed: args::Run) -> Result<Self, Failure> {
        let mut words = typed.command.into_iter();
        let program = words.next().ok_or_else(|| Failure::new("there is no command to run"))?;
        let timing = Timing::new(typed.ttl)?;
        Ok(Self {
            resource: named(&typed.resource, ResourceName::new)?,
            tickets: Tickets::new(typed.tickets)?,
            timing: typed.grace.map_or(timing, |grace| timing.with_grace(grace)),
            wait: typed.wait,
            priority: typed.priority,
            metadata: typed.metadata,
            again: Again::meant_by(typed.once, typed.exit_on_loss),
            // Settings may want both, of which the narrower counts.
            restart: if typed.once { Restart::Never } else { typed.restart },
            label: typed.label.map(|label| named(&label, Label::new)).transpose()?,
            namespace: named(&typed.at.namespace, Namespace::new)?,
            place: Place::find(typed.at.store)?,
            waits_for_store: typed.at.wait_for_store,
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
