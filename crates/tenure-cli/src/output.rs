//! The one file that prints. Data goes to stdout, everything else to stderr: what happened, to what, why.
//!
//! Beside it: `text` makes tables of what it is given, and harmless what could steer a terminal; `style` knows what a
//! terminal can show, `screen` draws on the whole of it.

mod screen;
mod style;
mod text;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tenure::EndReason;
use tenure::admin::{OwnerView, ResourceView};
use tenure::types::{Grant, WaitReason, Waiting};

pub(crate) use self::screen::{Line, Screen, Wish};
pub(crate) use self::style::{Colour, Style};
pub(crate) use self::text::{Table, beginning, clean, cut, escaped, short_span, span, width, wrapped};
use crate::args::{NEGATIVE, is_negative};
use crate::exit::{Exit, Failure};
use crate::json::Report;
use crate::place::Place;
use crate::process::{Caught, Killing};
use crate::settings::Store;
use crate::step_down::Handed;

/// How many lines wait for a reader who is slow; what comes after that is not said.
const LINES: usize = 256;
/// How long the end of `tenure` waits for such a reader.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who writes to stderr: a thread of its own, so that a reader who does not read never keeps a command from being
/// stopped in time.
struct Speaker {
    lines: SyncSender<String>,
    is_done: Mutex<Receiver<()>>,
}

impl Speaker {
    fn get() -> Option<&'static Self> {
        static SPEAKER: OnceLock<Option<Speaker>> = OnceLock::new();
        SPEAKER.get_or_init(Self::start).as_ref()
    }

    fn start() -> Option<Self> {
        let (lines, to_write) = sync_channel::<String>(LINES);
        let (done, is_done) = sync_channel(1);
        let write = move || {
            for line in to_write {
                // An empty one asks whether all has been said. That stderr is closed is no reason to stop.
                let _closed = match line.as_str() {
                    "" => done.send(()).map_err(io::Error::other),
                    line => io::stderr().lock().write_all(line.as_bytes()),
                };
            }
        };
        let thread = std::thread::Builder::new().name("tenure-stderr".into()).spawn(write);
        thread.ok().map(|_| Self { lines, is_done: Mutex::new(is_done) })
    }

    fn write(line: &str) {
        if let Some(speaker) = Self::get() {
            let _full = speaker.lines.try_send(without_control(line));
        }
    }
}

/// One line for people.
fn say(line: &str) {
    Speaker::write(&format!("tenure: {line}\n"));
}

fn hint(line: &str) {
    Speaker::write(&format!("\nhint: {line}\n"));
}

/// Both in one piece, so that nothing that another thread says comes between them.
fn say_with_hint(line: &str, may_help: Option<&str>) {
    let may_help = may_help.map(|what| format!("\nhint: {what}\n")).unwrap_or_default();
    Speaker::write(&format!("tenure: {line}\n{may_help}"));
}

/// Waits until all has been said, or nobody listens.
pub(crate) fn finish() {
    if let Some(speaker) = Speaker::get()
        && speaker.lines.try_send(String::new()).is_ok()
        && let Ok(is_done) = speaker.is_done.lock()
    {
        let _slow = is_done.recv_timeout(PATIENCE);
    }
}

/// What was found in a store, for programs.
pub(crate) fn report(store: &Store, answer: impl serde::Serialize) -> Result<(), Failure> {
    json(&Report::new(store.place.to_string(), store.namespace.as_str(), answer))
}

/// Data for programs.
pub(crate) fn json(report: &impl serde::Serialize) -> Result<(), Failure> {
    let written = serde_json::to_string_pretty(report);
    let written = written.map_err(|error| Failure::new("cannot write JSON").because(&error))?;
    data(&(escaped(&written) + "\n"))
}

/// Data, as it is. Who reads only the beginning of it is served well.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new("cannot write to stdout").because(&error))
        }
        _ => Ok(()),
    }
}

pub(crate) fn failed(failure: &Failure) {
    say_with_hint(&failure.to_string(), failure.hinted());
}

/// Help and version are data; everything else is a misunderstanding, said in our form.
pub(crate) fn told_by_clap(mut told: clap::Error) -> Exit {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if !told.use_stderr() {
        let text = told.render();
        let is_coloured = Style::of_stdout().is_coloured;
        let text = if is_coloured { text.ansi().to_string() } else { text.to_string() };
        return data(&text).map_or(Exit::FAILED, |()| Exit::OK);
    }
    if told.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Help that nobody asked for is a page, too, and no sentence of ours.
        Speaker::write(&told.render().to_string());
        return Exit::FAILED;
    }
    if let Some(ContextValue::Strings(known)) = told.get(ContextKind::ValidSubcommand) {
        // Nobody types what is hidden.
        let known = known.iter().filter(|known| *known != "demo-worker").cloned().collect();
        told.insert(ContextKind::ValidSubcommand, ContextValue::Strings(known));
    }
    let command = std::env::args_os().nth(1).and_then(|word| word.into_string().ok()).unwrap_or_default();
    let has_command = matches!(command.as_str(), "run" | "cron" | "once");
    if told.kind() == ErrorKind::UnknownArgument && has_command {
        // That it could follow `--` as a value: there begins the command.
        told.remove(ContextKind::Suggested);
    }
    if told.kind() == ErrorKind::UnknownArgument
        && let Some((option, value)) = negative_duration()
    {
        say(&format!("invalid value '{value}' for '{option}': {NEGATIVE}"));
        return Exit::FAILED;
    }
    let text = told.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).replace("\n  tip: ", "\nhint: ");
    say(text.trim_end());
    // What is most often left out.
    let is_left_out = has_command && !std::env::args_os().any(|word| word == "--");
    if told.kind() == ErrorKind::UnknownArgument && is_left_out && !text.contains("hint: ") {
        let what = match command.as_str() {
            "run" => "RESOURCE",
            "cron" => "SPEC --job NAME",
            _ => "NAME",
        };
        hint(&format!("the command follows `--`: tenure {command} {what} [OPTIONS] -- COMMAND"));
    }
    Exit::FAILED
}

/// The first option that was given a span with a sign, which clap takes for another option.
fn negative_duration() -> Option<(String, String)> {
    let words = std::env::args_os().take_while(|word| word != "--");
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let given = words.windows(2).find(|pair| {
        pair[0].starts_with("--")
            && is_negative(&pair[1])
            && pair[1].ends_with(|c: char| c.is_ascii_lowercase())
    })?;
    Some((given[0].clone(), given[1].clone()))
}

// ---- run ---------------------------------------------------------------------------------------------------

/// Why there is no ticket.
pub(crate) fn why(waiting: Waiting) -> String {
    match waiting.why {
        WaitReason::Quarantine => grants_nothing(waiting.look_again),
        WaitReason::Unreadable => "its record in the store cannot be read".to_owned(),
        // How many they are is the store's to say: the latest who came decided.
        _ => "all its tickets are owned".to_owned(),
    }
}

/// Why nobody gets a ticket, even if one is free, where that is so.
pub(crate) fn withheld(view: &ResourceView) -> Option<String> {
    view.withheld.map(grants_nothing)
}

/// The same where there is no resource that could show it.
pub(crate) fn withheld_from_all(left: Duration) {
    say(&grants_nothing(left));
}

/// Nothing is granted for so long.
pub(crate) fn grants_nothing(left: Duration) -> String {
    format!("the store is new, was restarted or lost its data, and grants nothing for {}", span(left))
}

pub(crate) fn waiting(resource: &str, place: &Place, waiting: Waiting) {
    let why = why(waiting);
    let ahead = match waiting.ahead {
        0 => String::new(),
        ahead => format!("; {ahead} before this one"),
    };
    say(&format!("waiting for `{resource}` on `{place}`: {why}{ahead}"));
}

pub(crate) fn same_label(resource: &str, label: &str) {
    say(&format!(
        "more than one worker of `{resource}` is labelled `{label}`: harmless, but people cannot tell them apart"
    ));
}

pub(crate) fn owns(resource: &str, term: u64) {
    say(&format!("owns `{resource}` (term {term})"));
}

/// Whose silence let a lease run out, and for how long it lasted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Silence {
    Store(Duration),
    /// Stopped, suspended or starved.
    Ours(Duration),
}

/// The end of an ownership that the command did not bring about itself.
pub(crate) fn ending(resource: &str, term: u64, ending: EndReason, place: &Place, silence: Silence) {
    let why = match ending {
        // Whoever asked for it knows.
        EndReason::Left | EndReason::Finished => return,
        // Said with what failed.
        EndReason::Failed => return,
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
    say(&format!("{verb} `{resource}` (term {term}): {why}"));
}

/// What may help against such an ending.
pub(crate) fn help_against(ending: EndReason, trust: Duration, ttl: Duration) -> Option<String> {
    let (trust, ttl) = (span(trust), span(ttl));
    match ending {
        EndReason::Expired => {
            Some(format!("a lease of {ttl} rides out {trust} of silence; for longer, raise `--ttl`"))
        }
        EndReason::Gone => Some(format!("others may own what the store forgot; competing again after {ttl}")),
        _ => None,
    }
}

pub(crate) fn stopping(
    command: &str,
    pid: i32,
    limit: Duration,
    because: Option<Caught>,
    may_help: Option<&str>,
) {
    let because = because.map(|caught| format!(" on {}", signal(caught.number))).unwrap_or_default();
    let what = format!("stopping `{command}` (pid {pid}){because}; it has {}", span(limit));
    say_with_hint(&what, may_help);
}

pub(crate) fn killing(command: &str, pid: i32, why: Killing) {
    let why = match why {
        Killing::Late => "it did not end in time",
        Killing::NoTime => "no time is left",
        Killing::Hurried => "SIGINT came again",
    };
    say(&format!("killing `{command}` (pid {pid}): {why}"));
}

pub(crate) fn does_not_die(command: &str, count: usize) {
    let many = processes(count);
    say(&format!(
        "`{command}`: {many} of it will not die; until that is over, this worker gives nothing up and claims nothing"
    ));
}

/// The command has ended, and others that it started have not.
pub(crate) fn left_behind(command: &str, count: usize, limit: Duration) {
    say(&format!(
        "`{command}` has ended and left {} behind; stopping it all within {}",
        processes(count),
        span(limit)
    ));
}

/// The guard cannot be relied on.
pub(crate) fn guard_lost(why: &str) {
    say(&format!("the guard process {why}; killing it and the command"));
}

/// The command is run again here.
pub(crate) fn restarting(command: &str, exit: Exit, pause: Duration) {
    say(&format!("`{command}` ended with {exit}; competing again in {}", span(pause)));
}

// ---- cron, once --------------------------------------------------------------------------------------------

pub(crate) fn job_failed(job: &str, occurrence: &str, what: &str) {
    say(&format!("`{job}` of {occurrence} failed: {what}"));
}

/// Its ownership ended, and it did not end well before that.
pub(crate) fn job_stopped(job: &str, occurrence: &str) {
    say(&format!("`{job}` of {occurrence} was stopped; the next owner finds it interrupted"));
}

pub(crate) fn job_interrupted(job: &str, occurrence: &str, worker: &str) {
    say(&format!(
        "`{job}` of {occurrence} was interrupted: `{worker}` had begun it, and did not say how it ended"
    ));
}

pub(crate) fn job_left_out(job: &str, count: u64, why: &str) {
    let many = if count == 1 { "1 occurrence is".to_owned() } else { format!("{count} occurrences are") };
    say(&format!("`{job}`: {many} left out: {why}"));
}

pub(crate) fn plan_changed(job: &str, before: &str, now: &str) {
    say(&format!("`{job}` had another plan until now: `{before}`; from now on it is `{now}`"));
    hint("all who run a job should have the same spec and time zone");
}

pub(crate) fn job_refused(job: &str, what: &str) {
    say(&format!("`{job}`: the store cannot be asked: {what}"));
}

/// Nothing is run, because somebody has done it.
pub(crate) fn done_before(resource: &str, by: &str, began: std::time::SystemTime, took: Duration) {
    let ago = began.elapsed().map(|ago| format!(", {} ago", span(ago))).unwrap_or_default();
    say(&format!("`{resource}` was done by `{by}`{ago}; it took {}", span(took)));
}

/// Nothing is run, because somebody is at it.
pub(crate) fn under_way(resource: &str) {
    say(&format!("another one is at `{resource}`; going on without waiting for it"));
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

/// A line from the guard, which has no thread to wait for a reader: it is said only where that does not wait.
pub(crate) fn from_guard(line: &str) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stderr = io::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        let line = format!("tenure: {}\n", without_control(line));
        let _closed = stderr.lock().write_all(line.as_bytes());
    }
}

/// What was typed or read comes back in messages, and must not steer a terminal.
fn without_control(line: &str) -> String {
    line.split('\n').map(clean).collect::<Vec<String>>().join("\n")
}

/// What the library warns of.
pub(crate) fn trouble(what: &str, may_help: Option<&str>) {
    say_with_hint(what, may_help);
}

fn signal(number: i32) -> String {
    match number {
        libc::SIGTERM => "SIGTERM".to_owned(),
        libc::SIGINT => "SIGINT".to_owned(),
        libc::SIGHUP => "SIGHUP".to_owned(),
        libc::SIGQUIT => "SIGQUIT".to_owned(),
        other => format!("signal {other}"),
    }
}

// ---- status ------------------------------------------------------------------------------------------------

pub(crate) fn which_store(place: &Place, namespace: &str) {
    say(&format!("store `{place}`, namespace `{namespace}`"));
}

pub(crate) fn nothing_yet(place: &Place) {
    say(&format!("nothing has been run yet: there is no store at `{place}`"));
}

pub(crate) fn nothing_claimed_yet() {
    say("nothing has been claimed yet");
}

pub(crate) fn no_job_yet() {
    say("no job has been run yet");
}

/// Some were claimed, and there is nothing to show of them.
pub(crate) fn nothing_owned(since: Option<Duration>) {
    say(&match since {
        Some(since) => format!("nobody has owned anything within {}", span(since)),
        None => "nobody has owned anything yet".to_owned(),
    });
}

pub(crate) fn never_claimed(resource: &str) {
    say(&format!("`{resource}` was never claimed"));
}

/// A store that is not there yet, and is waited for.
pub(crate) fn waiting_for_store(why: &Failure) {
    say(&format!("waiting for the store: {why}"));
}

// ---- step-down ---------------------------------------------------------------------------------------------

pub(crate) fn asked(resource: &str, worker: &str, term: u64) {
    say(&format!("asked `{worker}` to hand over `{resource}` (term {term}); waiting until it has"));
}

pub(crate) fn taken_away(resource: &str, worker: &str, term: u64) {
    say(&format!("took `{resource}` (term {term}) away from `{worker}`"));
    hint("until it learns of that, at its next renewal, it may go on working: only the token protects");
}

pub(crate) fn not_handed_over(resource: &str, worker: &str, waited: &str) {
    say(&format!("`{worker}` has not handed over `{resource}` within {waited}; it stays asked"));
    hint("`tenure step-down --force` takes it away at once; then only the token protects");
}

pub(crate) fn handed_over(resource: &str, handed: &Handed, took: Duration) -> Result<(), Failure> {
    let resource = clean(resource);
    let how = |owner: &OwnerView| {
        let Grant { ticket, term, token } = owner.grant;
        format!("(ticket {}, term {}, token {}), after {}\n", ticket.0, term.0, token.0, span(took))
    };
    data(&match handed {
        Handed::To(next) => format!("`{}` owns `{resource}` now {}", clean(next.worker.as_str()), how(next)),
        Handed::Back(same) => {
            let worker = clean(same.worker.as_str());
            format!("nobody else wanted `{resource}`: `{worker}` owns it again {}", how(same))
        }
        Handed::ToNobody { waiting: 0, .. } => format!("nobody owns `{resource}` now, and nobody wants it\n"),
        Handed::ToNobody { waiting, withheld } => {
            let why = withheld.map(|left| format!(": {}", grants_nothing(left))).unwrap_or_default();
            format!("nobody owns `{resource}` now; {waiting} wait for it, and have not taken it yet{why}\n")
        }
    })
}

// ---- config ------------------------------------------------------------------------------------------------

pub(crate) fn which_file(file: Option<&Path>, looked_for: &[PathBuf]) {
    match file {
        Some(file) => say(&format!("settings from `{}`", file.display())),
        None => {
            let places: Vec<String> = looked_for.iter().map(|path| format!("`{}`", path.display())).collect();
            say(&format!("there is no file with settings: neither {}", places.join(" nor ")));
        }
    }
}

/// A setting that contradicts one that comes first.
pub(crate) fn overruled(key: &str, place: &str, by: &str) {
    say(&format!("`{key}` ({place}) does not count: `{by}` comes first"));
}

// ---- new ---------------------------------------------------------------------------------------------------

/// What was written, and what is left to do.
pub(crate) fn written(lines: &[String], next: Option<&str>) -> Result<(), Failure> {
    data(&lines.iter().map(|line| clean(line) + "\n").collect::<String>())?;
    if let Some(next) = next {
        hint(next);
    }
    Ok(())
}
