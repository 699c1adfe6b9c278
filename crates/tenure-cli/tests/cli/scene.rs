//! A store in a folder of its own, `tenure` processes on it, and waiting for conditions with a limit.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::TempDir;

use super::command::{self, LIVES, Life, ROLE};

/// Nothing here should ever take so long.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Waits until `look` finds something.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    testkit::find(LIMIT, what, look)
}

/// A folder that goes with the test, and what runs in it.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    /// Another store than a file in the folder.
    store: Option<String>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { folder: testkit::folder(), store: None }
    }

    /// The same on a store that is elsewhere.
    pub(crate) fn on(url: String) -> Self {
        let mut scene = Self::new();
        scene.store = Some(url);
        scene
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        self.store.clone().unwrap_or_else(|| format!("sqlite:{}", self.file("tenure.db").display()))
    }

    /// `tenure`, on the store of this scene, in its folder. Whoever runs these tests in the background may have us
    /// ignore signals, and `tenure` respects that.
    pub(crate) fn tenure(&self) -> Command {
        self.tenure_by(&["env", "--default-signal=INT,HUP,QUIT,TERM"])
    }

    /// The same in a session of its own, to be given a terminal. The pid is that of `tenure`.
    pub(crate) fn tenure_on_terminal(&self) -> Command {
        self.tenure_by(&["setsid", "--ctty", "env", "--default-signal=INT,HUP,QUIT,TERM"])
    }

    fn tenure_by(&self, starter: &[&str]) -> Command {
        let mut tenure = Command::new(starter[0]);
        tenure.args(&starter[1..]).arg(env!("CARGO_BIN_EXE_tenure"));
        tenure.env("TENURE_STORE", self.url()).env("XDG_STATE_HOME", self.file("state"));
        tenure.env("XDG_CONFIG_HOME", self.file("config"));
        tenure.current_dir(&self.folder).stdin(Stdio::null());
        tenure
    }

    /// Its result, when it has ended by itself.
    pub(crate) fn done(&self, arguments: &[&str]) -> Output {
        self.tenure().args(arguments).output().expect("it runs")
    }

    /// Starts `tenure run job` with these options, called `label`, and the command that writes down its life.
    pub(crate) fn start(&self, label: &str, options: &[&str]) -> Tenure {
        self.start_with(label, options, &[&[us().as_str()], &ROLE[..]].concat())
    }

    /// The same for a command that ignores SIGTERM, as its parent did.
    pub(crate) fn start_deaf(&self, label: &str, options: &[&str]) -> Tenure {
        self.start_deaf_to(label, options, self.stderr(label))
    }

    pub(crate) fn start_deaf_to(&self, label: &str, options: &[&str], stderr: Stdio) -> Tenure {
        let us = us();
        let deaf = ["sh", "-c", "trap '' TERM; exec \"$0\" \"$@\"", us.as_str()];
        self.start_by(self.tenure(), label, options, &[&deaf, &ROLE[..]].concat(), stderr)
    }

    /// The same for a shell script.
    pub(crate) fn start_script(&self, label: &str, options: &[&str], script: &str) -> Tenure {
        self.start_with(label, options, &["sh", "-c", script])
    }

    pub(crate) fn start_with(&self, label: &str, options: &[&str], command: &[&str]) -> Tenure {
        self.start_by(self.tenure(), label, options, command, self.stderr(label))
    }

    /// The same by somebody who ignores SIGHUP, as `nohup` does.
    pub(crate) fn start_without_hangup(&self, label: &str) -> Tenure {
        let tenure = self.tenure_by(&["env", "--ignore-signal=HUP"]);
        self.start_by(tenure, label, &[], &[&[us().as_str()], &ROLE[..]].concat(), self.stderr(label))
    }

    /// The same for a shell script, with a terminal of its own, of which the other end is returned.
    pub(crate) fn start_on_terminal(&self, label: &str, options: &[&str], script: &str) -> (Tenure, File) {
        let (ours, theirs) = open_terminal();
        // Without a fork of its own, because we are not the leader of a group: the pid is that of `tenure`.
        let mut tenure = self.tenure_by(&["setsid", "--ctty", "env", "--default-signal=INT,HUP,QUIT,TERM"]);
        tenure.stdin(theirs);
        let started = self.start_by(tenure, label, options, &["sh", "-c", script], self.stderr(label));
        (started, ours)
    }

    /// The same for a worker with the label of another; what it says is in the file of `name`.
    pub(crate) fn start_as(&self, name: &str, label: &str) -> Tenure {
        let mut tenure = self.tenure();
        tenure.args(["run", "job", "--label", label, "--", "true"]).stderr(self.stderr(name));
        Tenure { child: tenure.spawn().expect("it runs"), said: self.said(name), label: label.to_owned() }
    }

    /// The same for another resource, and a command that does nothing.
    pub(crate) fn start_named(&self, resource: &str, label: &str, options: &[&str]) -> Tenure {
        let mut tenure = self.tenure();
        tenure.args(["run", resource, "--label", label]).args(options).args(["--", "sleep", "1000"]);
        tenure.stdout(Stdio::null()).stderr(self.stderr(label));
        Tenure { child: tenure.spawn().expect("it runs"), said: self.said(label), label: label.to_owned() }
    }

    /// The same for another command of `tenure`: everything up to its options, and a shell script.
    pub(crate) fn start_other(&self, label: &str, arguments: &[&str], script: &str) -> Tenure {
        let mut tenure = self.tenure();
        tenure.args(arguments).args(["--label", label, "--", "sh", "-c", script]);
        tenure.stdout(Stdio::null()).stderr(self.stderr(label));
        Tenure { child: tenure.spawn().expect("it runs"), said: self.said(label), label: label.to_owned() }
    }

    fn start_by(
        &self,
        mut tenure: Command,
        label: &str,
        options: &[&str],
        command: &[&str],
        stderr: Stdio,
    ) -> Tenure {
        tenure.args(["run", "job", "--label", label]).args(options).arg("--").args(command);
        tenure.env(LIVES, self.file("lives")).stdout(Stdio::null()).stderr(stderr);
        Tenure { child: tenure.spawn().expect("it runs"), said: self.said(label), label: label.to_owned() }
    }

    fn stderr(&self, label: &str) -> Stdio {
        File::create(self.said(label)).expect("a file").into()
    }

    fn said(&self, label: &str) -> PathBuf {
        self.file(&format!("{label}.stderr"))
    }

    /// For whoever looks into a test that failed.
    fn tell_what_was_said(&self) {
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "stderr") {
                let said = std::fs::read_to_string(entry.path()).unwrap_or_default();
                eprintln!("{} said:\n{said}", entry.path().display());
            }
        }
    }

    // ---- what the commands wrote ---------------------------------------------------------------------------

    pub(crate) fn lives(&self) -> Vec<Life> {
        command::read(&self.file("lives"))
    }

    /// Waits for the command of this term.
    pub(crate) fn life(&self, term: u64) -> Life {
        let live = || self.lives().into_iter().find(|life| life.term == term);
        until(&format!("a command of term {term}"), live)
    }

    /// No command began before the one before it had surely ended.
    pub(crate) fn assert_no_two_lived_at_once(&self) {
        let lives = self.lives();
        for pair in lives.windows(2) {
            assert!(pair[0].last_us < pair[1].first_us, "two lived at once: {pair:?}");
        }
    }

    /// The lines of a file that a script writes.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    // ---- what the store says -------------------------------------------------------------------------------

    /// Owners and waiters, by label.
    pub(crate) fn standing(&self) -> (Vec<String>, Vec<String>) {
        self.standing_of("job")
    }

    pub(crate) fn standing_of(&self, resource: &str) -> (Vec<String>, Vec<String>) {
        let output = self.done(&["status", resource, "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let labels = |which: &str| {
            let listed = report["resources"][0][which].as_array().cloned().unwrap_or_default();
            listed.iter().map(|one| one["worker"].as_str().expect("a label").to_owned()).collect()
        };
        (labels("owners"), labels("waiters"))
    }

    /// Has an operator do something about the present ownership.
    pub(crate) fn wish(&self, act: impl AsyncFnOnce(tenure::admin::Admin, u64)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let tools = tenure::admin::Admin::open(&self.url()).await.expect("a store");
            let view = tools.read("job").await.expect("an answer").expect("it was claimed");
            act(tools, view.owners[0].grant.token.0).await;
        });
    }

    /// Waits until so many wait.
    pub(crate) fn until_waiting(&self, count: usize) {
        until("workers that wait", || (self.standing().1.len() == count).then_some(()));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell_what_was_said();
        }
    }
}

/// A `tenure` process. Dropping it kills it, and its command with it.
pub(crate) struct Tenure {
    child: Child,
    said: PathBuf,
    pub(crate) label: String,
}

impl Tenure {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// The pid of its guard, its only child.
    pub(crate) fn guard(&self) -> i32 {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        until("a guard", || std::fs::read_to_string(&path).ok()?.split_whitespace().next()?.parse().ok())
    }

    /// `kill -9`. Returns when it has been dead for a moment, and when it was killed.
    pub(crate) fn kill(&mut self) -> u64 {
        let killed_us = command::now_us();
        self.child.kill().expect("it is there");
        self.child.wait().expect("it is dead");
        killed_us
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let what = format!("the end of {}, which said {:?}", self.label, self.said());
        until(&what, || self.child.try_wait().expect("an answer"))
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("an answer").is_some()
    }

    /// What it told people so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap_or_default()
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Both ends of a terminal: ours, and that of those who run on it.
pub(crate) fn open_terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it can be used");
    let path = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("UTF-8");
    let mut options = File::options();
    // Not to become the terminal of this very process.
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    (File::from(ours), options.open(path).expect("the other end"))
}

/// The path of this very program.
pub(crate) fn us() -> String {
    std::env::current_exe().expect("this test has a path").into_os_string().into_string().expect("UTF-8")
}

/// Whether a process that is not ours to reap still runs. Whoever has to reap it may take its time.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it, in brackets, may hold anything.
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

pub(crate) fn kill(pid: i32) {
    send(pid, Signal::KILL);
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("it is there");
}
