//! What is meant: the settings of each command, made from its arguments and checked before the command starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use tenure::Timing;
use tenure::jobs::cron::{Interrupted, Misfire, Schedule};
use tenure::store::{Namespace, Tickets};
use tenure::types::{Label, LimitError, ResourceName};

use crate::args::{self, Args, Restart, Wanted};
use crate::config::Found;
use crate::exit::Failure;
use crate::json::Setting;
use crate::new::names::{ModuleName, PackageName, Resource};
use crate::place::Place;

/// A command with its settings.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Box<Run>),
    Status(Status),
    History(History),
    Jobs(Jobs),
    StepDown(StepDown),
    Explain(Explain),
    Doctor(Doctor),
    Config(Config),
    Demo(Demo),
    DemoWorker(DemoWorker),
    Completions(clap_complete::Shell),
    /// The name of the command, such as `new-app`; empty for all of `tenure`.
    Man(String),
    Schema(Schema),
    New(New),
}

impl Command {
    /// `matches` is what `typed` was made from, `found` the settings that were not typed.
    pub(crate) fn from_args(typed: Args, matches: &ArgMatches, found: &Found) -> Result<Self, Failure> {
        Ok(match typed.wanted {
            Wanted::Run(typed) => Self::Run(Box::new(Run::from_args(typed, found)?)),
            Wanted::Cron(typed) if typed.list || typed.history.is_some() => {
                let (one, look) = (optional(typed.history)?, Look::from_args(typed.look)?);
                Self::Jobs(Jobs { one, look })
            }
            Wanted::Cron(typed) => Self::Run(Box::new(Run::from_cron_args(typed)?)),
            Wanted::Once(typed) => Self::Run(Box::new(Run::from_once_args(typed)?)),
            Wanted::Status(args::Status { resource, watch, look }) => {
                let (resource, look) = (optional(resource)?, Look::from_args(look)?);
                Self::Status(Status { resource, watch, look })
            }
            Wanted::History(args::History { resource, since, look }) => {
                let (resource, look) = (optional(resource)?, Look::from_args(look)?);
                Self::History(History { resource, since, look })
            }
            Wanted::StepDown(typed) => Self::StepDown(StepDown::from_args(typed)?),
            Wanted::Explain(args::Explain { resource, look }) => {
                let (resource, look) = (named(&resource, ResourceName::new)?, Look::from_args(look)?);
                Self::Explain(Explain { resource, look })
            }
            Wanted::Doctor(args::Doctor { ttl, look }) => {
                Self::Doctor(Doctor { timing: ttl, look: Look::from_args(look)? })
            }
            Wanted::Config(typed) => Self::Config(Config::from_args(&typed, matches, found)?),
            Wanted::Demo(typed) => Self::Demo(Demo::from_args(&typed)?),
            Wanted::DemoWorker(args::DemoWorker { folder, name, ttl, plant }) => {
                let label = Label::new(&name)?;
                Self::DemoWorker(DemoWorker { folder, label, timing: ttl, is_planted: plant })
            }
            Wanted::Completions(args::Completions { shell }) => Self::Completions(shell),
            Wanted::Man(args::Man { command }) => Self::Man(command.join("-")),
            Wanted::Schema(args::Schema { kind: args::StoreKind::Postgres, namespace, role }) => {
                Self::Schema(Schema { namespace: Namespace::new(&namespace)?, role })
            }
            Wanted::New(typed) => Self::New(New::from_args(typed)?),
        })
    }
}

/// A namespace of a store, and whether to wait for the store.
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

/// The store to look at, and the form of the answer.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) store: Store,
    /// Whether programs read the answer.
    pub(crate) json: bool,
}

impl Look {
    fn from_args(typed: args::Look) -> Result<Self, Failure> {
        Ok(Self { store: Store::from_args(typed.at)?, json: typed.json })
    }
}

// ---- run, cron, once ---------------------------------------------------------------------------------------

/// A command to run, once or at set times.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) resource: ResourceName,
    pub(crate) duty: Duty,
    pub(crate) tickets: Tickets,
    pub(crate) timing: Timing,
    /// How long to wait for the first ownership.
    pub(crate) wait: Option<Duration>,
    pub(crate) label: Option<Label>,
    pub(crate) priority: i32,
    pub(crate) metadata: Option<String>,
    pub(crate) again: Again,
    pub(crate) restart: Restart,
    pub(crate) store: Store,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Settings that another one overrides, as a line each.
    pub(crate) overruled: Vec<String>,
}

/// What to do with an ownership.
#[derive(Debug)]
pub(crate) enum Duty {
    /// Run the command. The ownership ends with it.
    Command,
    /// Run the command at set times.
    Cron(Cron),
    /// Run the command once in the whole cluster.
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

/// After which ends of an ownership, other than the command's own, to compete again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// After all of them.
    Always,
    /// After a hand-over. A loss ends `tenure`.
    AfterHandOver,
    /// After none: the command is started at most once.
    Never,
}

impl Run {
    fn from_args(typed: args::Run, found: &Found) -> Result<Self, Failure> {
        let run = Self::new(&typed.resource, Duty::Command, typed.competing, typed.at, typed.command)?;
        let again = match (typed.once, typed.exit_on_loss) {
            (true, _) => Again::Never,
            (false, true) => Again::AfterHandOver,
            (false, false) => Again::Always,
        };
        let tickets = Tickets::new(typed.tickets)?;
        let overruled = found.overruled();
        Ok(Self { tickets, wait: typed.wait, again, restart: typed.restart, overruled, ..run })
    }

    fn from_cron_args(typed: args::Cron) -> Result<Self, Failure> {
        let (spec, name) = (typed.spec.unwrap_or_default(), typed.job.unwrap_or_default());
        named(&name, ResourceName::new)?;
        let schedule = Schedule::new(&spec)?.in_zone(&typed.tz)?;
        let interrupted = match typed.interrupted {
            args::Interrupted::Leave => Interrupted::Leave,
            args::Interrupted::Again => Interrupted::Again,
        };
        let resource = format!("cron:{name}");
        let cron = Cron { name, spec, schedule, misfire: typed.misfire, jitter: typed.jitter, interrupted };
        Self::new(&resource, Duty::Cron(cron), typed.competing, typed.look.at, typed.command)
    }

    fn from_once_args(typed: args::Once) -> Result<Self, Failure> {
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
            overruled: Vec::new(),
        })
    }
}

// ---- those that look at a store, or ask an owner to step down ------------------------------------------------

#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) resource: Option<ResourceName>,
    pub(crate) watch: bool,
    pub(crate) look: Look,
}

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) resource: Option<ResourceName>,
    pub(crate) since: Option<Duration>,
    pub(crate) look: Look,
}

/// A list of all jobs, or the history of one.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) one: Option<ResourceName>,
    pub(crate) look: Look,
}

#[derive(Debug)]
pub(crate) struct Explain {
    pub(crate) resource: ResourceName,
    pub(crate) look: Look,
}

#[derive(Debug)]
pub(crate) struct Doctor {
    pub(crate) timing: Timing,
    pub(crate) look: Look,
}

#[derive(Debug)]
pub(crate) struct StepDown {
    pub(crate) resource: ResourceName,
    pub(crate) ticket: Option<u32>,
    pub(crate) how: Removal,
    pub(crate) wait: Option<Duration>,
    pub(crate) look: Look,
}

/// How the owner is made to give up its ticket.
#[derive(Debug)]
pub(crate) enum Removal {
    Ask { successor: Option<Label> },
    Force,
}

impl StepDown {
    fn from_args(typed: args::StepDown) -> Result<Self, Failure> {
        let resource = named(&typed.resource, ResourceName::new)?;
        let successor = typed.to.map(|label| named(&label, Label::new)).transpose()?;
        let how = if typed.force { Removal::Force } else { Removal::Ask { successor } };
        let look = Look::from_args(typed.look)?;
        Ok(Self { resource, ticket: typed.ticket, how, wait: typed.wait, look })
    }
}

// ---- the others --------------------------------------------------------------------------------------------

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) json: bool,
    pub(crate) file: Option<PathBuf>,
    pub(crate) settings: Vec<Setting>,
    /// Settings that another one overrides, as a line each.
    pub(crate) overruled: Vec<String>,
}

impl Config {
    fn from_args(typed: &args::Config, matches: &ArgMatches, found: &Found) -> Result<Self, Failure> {
        let settings = found.all_in_force(matches.subcommand_matches("config").unwrap_or(matches))?;
        let (file, overruled) = (found.file().map(PathBuf::from), found.overruled());
        Ok(Self { json: typed.json, file, settings, overruled })
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
    fn from_args(typed: &args::Demo) -> Result<Self, Failure> {
        if typed.script && typed.workers < FEWEST_IN_SCRIPT {
            return Err(Failure::new(format!("the script needs at least {FEWEST_IN_SCRIPT} workers")));
        }
        let play = if typed.script { Play::Script { is_planted: typed.plant } } else { Play::User };
        Ok(Self { timing: typed.ttl, workers: typed.workers, play })
    }
}

/// One worker process of the demo.
#[derive(Debug)]
pub(crate) struct DemoWorker {
    /// Where the store is, and the file in which the workers write down when they work.
    pub(crate) folder: PathBuf,
    pub(crate) label: Label,
    pub(crate) timing: Timing,
    pub(crate) is_planted: bool,
}

/// Code to write.
#[derive(Debug)]
pub(crate) enum New {
    Module { name: ModuleName, resources: Vec<Resource> },
    App { name: PackageName, path: PathBuf, tenure: PathBuf },
}

impl New {
    fn from_args(typed: args::New) -> Result<Self, Failure> {
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

/// SQL to print.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) namespace: Namespace,
    /// The role that is granted what a worker needs.
    pub(crate) role: Option<String>,
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
