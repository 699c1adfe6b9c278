//! Worker processes: this program again, under a hidden subcommand. They are told words on their standard input,
//! and say words and numbers on their standard output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tenure::Timing;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::ground::Site;
use crate::{Failure, players, usage};

pub(crate) const SUBCOMMAND: &str = "play";

/// Longer than anything here takes unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The processes of one measurement. They end with it.
#[derive(Debug)]
pub(crate) struct Troupe {
    players: Vec<Player>,
    said: mpsc::Sender<Line>,
    heard: mpsc::Receiver<Line>,
}

#[derive(Debug)]
struct Player {
    child: Child,
    ear: ChildStdin,
}

/// What a process said.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) by: usize,
    pub(crate) word: String,
    pub(crate) numbers: Vec<u64>,
}

impl Line {
    pub(crate) fn number(&self, index: usize) -> Result<u64, Failure> {
        self.numbers.get(index).copied().ok_or_else(|| format!("{self:?} has too few numbers").into())
    }

    /// The `index`th number as a point in time: nanoseconds of BOOTTIME.
    pub(crate) fn time(&self, index: usize) -> Result<Duration, Failure> {
        Ok(Duration::from_nanos(self.number(index)?))
    }
}

impl Troupe {
    pub(crate) fn new() -> Self {
        let (said, heard) = mpsc::channel();
        Self { players: Vec::new(), said, heard }
    }

    /// Starts one more, and returns its number.
    pub(crate) fn start(&mut self, part: &Part) -> Result<usize, Failure> {
        let by = self.players.len();
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(SUBCOMMAND).args(part.words()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (ear, mouth) = (child.stdin.take(), child.stdout.take());
        let (Some(ear), Some(mouth)) = (ear, mouth) else { return Err("a process without pipes".into()) };
        self.players.push(Player { child, ear });
        let said = self.said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(mouth).lines().map_while(Result::ok) {
                let mut words = line.split(' ').map(str::to_owned);
                let word = words.next().unwrap_or_default();
                let numbers = words.filter_map(|word| word.parse().ok()).collect();
                if said.send(Line { by, word, numbers }).is_err() {
                    return;
                }
            }
        });
        Ok(by)
    }

    /// How long the process has been running on a core so far.
    pub(crate) fn cpu(&self, who: usize) -> Result<Duration, Failure> {
        usage::on_cpu(self.players[who].child.id())
    }

    pub(crate) fn tell(&mut self, who: usize, word: &str) -> Result<(), Failure> {
        Ok(writeln!(self.players[who].ear, "{word}")?)
    }

    /// `kill -9`, and returns when the kernel says that it is gone.
    pub(crate) fn kill(&mut self, who: usize) -> Result<(), Failure> {
        let child = &mut self.players[who].child;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// What is said next.
    pub(crate) fn hear(&self) -> Result<Line, Failure> {
        self.heard.recv_timeout(LIMIT).map_err(|_| format!("no process said anything for {LIMIT:?}").into())
    }

    /// The next line of this word; others are passed over.
    pub(crate) fn hear_word(&self, word: &str) -> Result<Line, Failure> {
        loop {
            let line = self.hear()?;
            if line.word == word {
                return Ok(line);
            }
        }
    }

    /// The next line of this word by this process.
    pub(crate) fn hear_of(&self, by: usize, word: &str) -> Result<Line, Failure> {
        loop {
            let line = self.hear_word(word)?;
            if line.by == by {
                return Ok(line);
            }
        }
    }
}

impl Drop for Troupe {
    fn drop(&mut self) {
        for player in &mut self.players {
            // One that has ended already cannot be killed, and that is fine.
            let _ = player.child.kill();
            let _ = player.child.wait();
        }
    }
}

/// What a process is to do.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) role: Role,
    pub(crate) site: Site,
    pub(crate) ttl: Duration,
    /// How many: of resources or of workers, as the role has it.
    pub(crate) count: usize,
}

/// Which of the players it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Owns one resource, and hands it over when told to.
    Owner,
    /// Owns many resources in callbacks.
    Callbacks,
    /// Owns many resources by hand.
    ByHand,
    /// Many workers wait for one resource.
    Waiters,
    /// Many workers own a resource each.
    Workers,
    /// Many workers, each with a store of its own, claim the same at once.
    Rivals,
    /// The same, and they share one store.
    Throng,
}

const ROLES: [(&str, Role); 7] = [
    ("owner", Role::Owner),
    ("callbacks", Role::Callbacks),
    ("by-hand", Role::ByHand),
    ("waiters", Role::Waiters),
    ("workers", Role::Workers),
    ("rivals", Role::Rivals),
    ("throng", Role::Throng),
];

impl Part {
    pub(crate) fn new(role: Role, site: &Site, ttl: Duration, count: usize) -> Self {
        Self { role, site: site.clone(), ttl, count }
    }

    pub(crate) fn timing(&self) -> Result<Timing, Failure> {
        Ok(Timing::new(self.ttl)?)
    }

    fn words(&self) -> [String; 5] {
        let role = ROLES.iter().find(|(_, role)| *role == self.role).map_or("", |(name, _)| name);
        let (ttl, count) = (self.ttl.as_millis().to_string(), self.count.to_string());
        let [url, namespace] = self.site.words().map(str::to_owned);
        [role.to_owned(), url, namespace, ttl, count]
    }

    fn parse(words: &[String]) -> Result<Self, Failure> {
        let [role, url, namespace, ttl, count] = words else { return Err("a part has five words".into()) };
        let (_, role) = ROLES.iter().find(|(name, _)| name == role).ok_or("there is no such role")?;
        let ttl = Duration::from_millis(ttl.parse()?);
        Ok(Self { role: *role, site: Site::at(url, namespace), ttl, count: count.parse()? })
    }
}

/// What the process is told, in its own runtime.
pub(crate) type Told = UnboundedReceiver<String>;

/// Plays a part until nobody listens any more.
pub(crate) fn serve(words: &[String]) -> Result<(), Failure> {
    let part = Part::parse(words)?;
    let (to, told) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
        // Who started us is gone, and so is the reason to go on.
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(players::play(part, told))
}

/// Says a word and numbers to who started this process.
pub(crate) fn say(word: &str, numbers: &[u64]) {
    let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
    // When nobody listens the process is about to end.
    let _gone = writeln!(std::io::stdout(), "{word}{numbers}");
}
