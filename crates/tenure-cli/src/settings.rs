//! What is meant: the settings of each command, made from its arguments and checked before the command starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use tenure::Timing;
use tenure::jobs::cron::{Interrupted, Misfire, Schedule};
use tenure::store::{Namespace, Tickets};
use tenure::types::{Label, LimitError, ResourceName};

use crate::args::{self, Restart};
use crate::config::Found;
use crate::exit::Failure;
use crate::json::Setting;
use crate::new::names::{ModuleName, PackageName, Resource};
use crate::place::Place;

/// Which part of which store, and whether to wait for it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) place: Place,
    pub(crate) namespace: Namespace,
    /// Whether to wait for a store that does not exist yet.
    pub(crate) waits: bool,
}

impl Store {
    fn from_args(typed: args::At) -> Result<Self, Failure> {
        let namespace = named(&typed.namespace, Namespace::new)?;
        Ok(Self { namespace, place: Place::find(typed.store)?, waits: typed.wait_for_store })
    }
}

/// Who reads the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    People,
    Programs,
    /// People who watch it change.
    Watchers,
}

impl Form {
    fn from_args(json: bool) -> Self {
        if json { Self::Programs } else { Self::People }
    }
}

// ---- run, cron, once ---------------------------------------------------------------------------------------

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
    pub(crate) store: Store,
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

impl Run {
    pub(crate) fn from_args(typed: args::Run) -> Result<Self, Failure> {
        let run = Self::new(&typed.resource, Duty::Command, typed.competing, typed.at, typed.command)?;
        let again = match (typed.once, typed.exit_on_loss) {
            (true, _) => Again::Never,
            (false, true) => Again::AfterHandOver,
            (false, false) => Again::Always,
        };
        let tickets = Tickets::new(typed.tickets)?;
        Ok(Self { tickets, wait: typed.wait, again, restart: typed.restart, ..run })
    }

    pub(crate) fn from_cron_args(typed: args::Cron) -> Result<Self, Failure> {
        let (spec, name) = (typed.spec.unwrap_or_default(), typed.job.unwrap_or_default());
        named(&name, ResourceName::new)?;
        let schedule = Schedule::new(&spec)?.in_zone(&typed.tz)?;
        let interrupted = match typed.interrupted {
            args::Interrupted::Leave => Interrupted::Leave,
            args::Interrupted::Again => Interrupted::Again,
        };
        let resource = format!("cron:{name}");
        let cron = Cron { name, spec, schedule, misfire: typed.misfire, jitter: typed.jitter, interrupted };
        Self::new(&resource, Duty::Cron(cron), typed.competing, typed.at, typed.command)
    }

    pub(crate) fn from_once_args(typed: args::Once) -> Result<Self, Failure> {
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
        let timing = competing.ttl;
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
            store: Store::from_args(at)?,
            program,
            arguments: words.collect(),
        })
    }
}

// ---- those that look at a store, or ask an owner to go -----------------------------------------------------

#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) resource: Option<ResourceName>,
    pub(crate) form: Form,
    pub(crate) store: Store,
}

impl Status {
    pub(crate) fn from_args(typed: args::Status) -> Result<Self, Failure> {
        let form = if typed.watch { Form::Watchers } else { Form::from_args(typed.json) };
        Ok(Self { resource: optional(typed.resource)?, form, store: Store::from_args(typed.at)? })
    }
}

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) resource: Option<ResourceName>,
    pub(crate) since: Option<Duration>,
    pub(crate) form: Form,
    pub(crate) store: Store,
}

impl History {
    pub(crate) fn from_args(typed: args::History) -> Result<Self, Failure> {
        let (resource, form) = (optional(typed.resource)?, Form::from_args(typed.json));
        Ok(Self { resource, since: typed.since, form, store: Store::from_args(typed.at)? })
    }
}

/// A list of all jobs, or the history of one.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) one: Option<ResourceName>,
    pub(crate) form: Form,
    pub(crate) store: Store,
}

impl Jobs {
    pub(crate) fn from_args(typed: args::Cron) -> Result<Self, Failure> {
        let (one, form) = (optional(typed.history)?, Form::from_args(typed.json));
        Ok(Self { one, form, store: Store::from_args(typed.at)? })
    }
}

#[derive(Debug)]
pub(crate) struct Explain {
    pub(crate) resource: ResourceName,
    pub(crate) form: Form,
    pub(crate) store: Store,
}

impl Explain {
    pub(crate) fn from_args(typed: args::Explain) -> Result<Self, Failure> {
        let (resource, form) = (named(&typed.resource, ResourceName::new)?, Form::from_args(typed.json));
        Ok(Self { resource, form, store: Store::from_args(typed.at)? })
    }
}

#[derive(Debug)]
pub(crate) struct Doctor {
    pub(crate) timing: Timing,
    pub(crate) form: Form,
    pub(crate) store: Store,
}

impl Doctor {
    pub(crate) fn from_args(typed: args::Doctor) -> Result<Self, Failure> {
        let form = Form::from_args(typed.json);
        Ok(Self { timing: typed.ttl, form, store: Store::from_args(typed.at)? })
    }
}

#[derive(Debug)]
pub(crate) struct StepDown {
    pub(crate) resource: ResourceName,
    pub(crate) ticket: Option<u32>,
    pub(crate) how: Removal,
    pub(crate) wait: Option<Duration>,
    pub(crate) form: Form,
    pub(crate) store: Store,
}

/// How the owner is made to give up its ticket.
#[derive(Debug)]
pub(crate) enum Removal {
    Ask { successor: Option<Label> },
    Force,
}

impl StepDown {
    pub(crate) fn from_args(typed: args::StepDown) -> Result<Self, Failure> {
        let resource = named(&typed.resource, ResourceName::new)?;
        let successor = typed.to.map(|label| named(&label, Label::new)).transpose()?;
        let how = if typed.force { Removal::Force } else { Removal::Ask { successor } };
        let (form, store) = (Form::from_args(typed.json), Store::from_args(typed.at)?);
        Ok(Self { resource, ticket: typed.ticket, how, wait: typed.wait, form, store })
    }
}

// ---- the others --------------------------------------------------------------------------------------------

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) form: Form,
    pub(crate) file: Option<PathBuf>,
    pub(crate) settings: Vec<Setting>,
}

impl Config {
    pub(crate) fn from_args(
        typed: &args::Config,
        matches: &ArgMatches,
        found: &Found,
    ) -> Result<Self, Failure> {
        let settings = found.all_in_force(matches.subcommand_matches("config").unwrap_or(matches))?;
        let file = found.file().map(PathBuf::from);
        Ok(Self { form: Form::from_args(typed.json), file, settings })
    }
}

/// With fewer, nobody would be left to take over from a worker that the script kills or pauses.
const FEWEST_IN_SCRIPT: u8 = 3;

#[derive(Debug)]
pub(crate) struct Demo {
    pub(crate) timing: Timing,
    pub(crate) workers: u8,
    pub(crate) play: Play,
}

/// Who decides what happens in the demo.
#[derive(Debug)]
pub(crate) enum Play {
    User,
    Script { is_planted: bool },
}

impl Demo {
    pub(crate) fn from_args(typed: &args::Demo) -> Result<Self, Failure> {
        if typed.script && typed.workers < FEWEST_IN_SCRIPT {
            return Err(Failure::new(format!("the script needs {FEWEST_IN_SCRIPT} workers at least")));
        }
        let play = if typed.script { Play::Script { is_planted: typed.plant } } else { Play::User };
        Ok(Self { timing: typed.ttl, workers: typed.workers, play })
    }
}

/// Code to be written.
#[derive(Debug)]
pub(crate) enum New {
    Module { name: ModuleName, resources: Vec<Resource> },
    App { name: PackageName, path: PathBuf, tenure: PathBuf },
}

impl New {
    pub(crate) fn from_args(typed: args::New) -> Result<Self, Failure> {
        match typed.what {
            args::NewWhat::Module(typed) => {
                let name = ModuleName::new(&typed.name)?;
                let resources = Resource::all(&typed.resources, Tickets::new(typed.tickets)?.count())?;
                Ok(Self::Module { name, resources })
            }
            args::NewWhat::App(typed) => {
                let name = PackageName::of(&typed.path)?;
                let tenure = typed.tenure_path.ok_or_else(|| {
                    Failure::new("the crate `tenure` is not published yet")
                        .hint("name a checkout of Tenure: --tenure-path PATH")
                })?;
                Ok(Self::App { name, path: typed.path, tenure })
            }
        }
    }
}

/// A script to be printed.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) namespace: Namespace,
    /// The role that is granted what a worker needs.
    pub(crate) role: Option<String>,
}

impl Schema {
    pub(crate) fn from_args(typed: args::Schema) -> Result<Self, Failure> {
        let args::StoreKind::Postgres = typed.kind;
        Ok(Self { namespace: Namespace::new(&typed.namespace)?, role: typed.role })
    }
}

// ---- names -------------------------------------------------------------------------------------------------

fn optional(typed: Option<String>) -> Result<Option<ResourceName>, Failure> {
    typed.map(|name| named(&name, ResourceName::new)).transpose()
}

/// Checks a name. An error shows only the beginning of a long one; here it also shows that it does.
fn named<T>(typed: &str, check: fn(&str) -> Result<T, LimitError>) -> Result<T, Failure> {
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
