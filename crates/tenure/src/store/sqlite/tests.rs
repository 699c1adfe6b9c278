//! The rules in SQL, compared with the ledger's on a clock of their own: every answer, hint and record is equal.

use std::time::Duration;

use rusqlite::Connection;
use tenure_core::{
    Begin, Call, Closing, Here, Hint, Holder, JobAct, JobOutcome, JobSaid, JobStep, Label, LeaseId, Leave,
    Leaving, Ledger, Metadata, Moment, Note, Occurrence, Plan, Request, ResourceName, Seq, StoreTime,
    Tickets, Token, Want,
};

use super::host::Process;
use super::lock::Identity;
use super::schema::TABLES;
use super::step::{INCARNATION, Opener, Step};
use super::tickets::Wake;
use super::{Proof, jobs, read};

/// How many sequences, and how long each is.
const SEEDS: u64 = 60;
const STEPS: usize = 500;

/// Numbers that repeat with their seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

struct Both {
    db: Connection,
    ledger: Ledger,
    dice: Dice,
    now: u64,
    wall: u64,
    seq: u64,
    /// Those at play; now and then one is replaced by a new id.
    leases: Vec<LeaseId>,
    /// How often something was granted, and begun, so that the test shows that it tested something.
    granted: usize,
    begun: usize,
}

impl Both {
    fn new(seed: u64) -> Self {
        let db = Connection::open_in_memory().expect("memory");
        for tables in TABLES {
            db.execute_batch(tables).expect("the schema is SQL");
        }
        db.execute_batch(
            "PRAGMA foreign_keys = ON; INSERT INTO namespace (name) VALUES ('other'), ('tenure')",
        )
        .expect("two namespaces");
        let leases = (1..=4).map(LeaseId).collect();
        let ledger = Ledger::new(INCARNATION);
        let (dice, now, wall) = (Dice(seed), 3_600_000_000, 1_000_000);
        Self { db, ledger, dice, now, wall, seq: 10, leases, granted: 0, begun: 0 }
    }

    fn here(&self) -> Here {
        Here::new(StoreTime::from_micros(self.now), self.wall, INCARNATION).expect("before 2200")
    }

    fn name(&mut self) -> ResourceName {
        ResourceName::new(["b", "a", "ä job"][self.dice.below(3) as usize]).expect("a name")
    }

    fn pass_time(&mut self) {
        let span = match self.dice.below(80) {
            0 => {
                // Longer than the dead are remembered: an id that is used again by then breaks the contract.
                (0..self.leases.len()).for_each(|index| self.replace(index));
                4_000_000_000
            }
            1..=12 => self.dice.below(400_000),
            13..=36 => self.dice.below(60_000),
            _ => self.dice.below(500),
        };
        self.now += span;
        // The wall clock goes its own way, also back.
        self.wall = (self.wall + self.dice.below(1000)).saturating_sub(self.dice.below(900));
    }

    fn replace(&mut self, index: usize) {
        self.leases[index] = LeaseId(u128::from(self.dice.below(u64::MAX)) << 64 | 1);
    }

    fn request(&mut self) -> Request {
        let lease = self.leases[self.dice.below(self.leases.len() as u64) as usize];
        self.seq += 1;
        let late = if self.dice.chance(6) { self.dice.below(8) } else { 0 };
        let judged_by = match self.dice.below(4) {
            0 => None,
            1 => Some(StoreTime::from_micros(self.now - self.dice.below(400_000))),
            _ => Some(StoreTime::from_micros(self.now + self.dice.below(1000))),
        };
        let ttl = Duration::from_millis(300 + self.dice.below(3) * 17_000) + Duration::from_nanos(7);
        let call = match self.dice.below(16) {
            0..=1 => Call::Open {
                ttl,
                label: Label::new(["one", "two"][self.dice.below(2) as usize]).expect("a label"),
                metadata: Metadata::default(),
            },
            2..=5 => Call::Renew,
            6..=11 => Call::Claim((0..=self.dice.below(2)).map(|_| self.want()).collect()),
            12..=13 => Call::Release((0..=self.dice.below(2)).map(|_| self.leave()).collect()),
            14 => Call::Held,
            _ if self.dice.chance(2) => Call::Close(match self.dice.below(3) {
                0 => Closing::Left,
                1 => Closing::Expired,
                _ => Closing::Proved,
            }),
            _ => Call::Renew,
        };
        let asked_at = Moment::new(Duration::ZERO, Duration::ZERO);
        let (limit, longest) = (Duration::from_secs(1), Duration::from_millis(self.dice.below(2) * 500));
        Request { lease, seq: Seq(self.seq - late), asked_at, limit, judged_by, longest, call }
    }

    fn want(&mut self) -> Want {
        let tickets = if self.dice.chance(3) { 1 + self.dice.below(3) } else { 1 };
        let tickets = Tickets::new(u32::try_from(tickets).expect("small")).expect("within the limits");
        Want { resource: self.name(), tickets, priority: self.dice.below(3) as i32 - 1 }
    }

    fn leave(&mut self) -> Leave {
        let how = [Leaving::Released, Leaving::Failed, Leaving::SteppedDown][self.dice.below(3) as usize];
        Leave { resource: self.name(), how }
    }

    /// One step on both sides, and the comparison.
    fn play(&mut self) {
        self.pass_time();
        if self.dice.chance(12) {
            let index = self.dice.below(self.leases.len() as u64) as usize;
            self.replace(index);
        }
        match self.dice.below(15) {
            0 => self.wish(),
            1 => self.look(),
            2..=4 => self.work(),
            _ => self.call(),
        }
    }

    fn call(&mut self) {
        let (request, here) = (self.request(), self.here());
        let expected = self.ledger.apply(here, &request);
        let mut step = self.step();
        let found = step.apply(&request, Some(&opener())).expect("an answer");
        let (hints, granted) = (hinted(&step.wakes), step.granted);
        self.granted += usize::from(granted);

        assert_eq!(found, expected, "to {request:?}");
        assert_eq!(hints, self.ledger.take_hints(), "after {request:?}");
    }

    fn wish(&mut self) {
        let (name, here) = (self.name(), self.here());
        let owners = self.ledger.read(here, name.as_str()).map(|view| view.owners).unwrap_or_default();
        let token = owners.first().map_or(Token(3), |owner| owner.grant.token);
        let token = if self.dice.chance(4) { Token(token.0 + 1) } else { token };
        let label = Label::new("two").expect("a label");
        let successor = self.dice.chance(2).then_some(&label);
        let evicts = self.dice.chance(2);
        let expected = match evicts {
            true => self.ledger.evict(here, name.as_str(), token),
            false => self.ledger.ask(here, name.as_str(), token, successor),
        };
        let mut step = self.step();
        let found = match evicts {
            true => step.evict(&name, token),
            false => step.ask(&name, token, successor),
        };
        let hints = hinted(&step.wakes);

        assert_eq!(found.expect("an answer"), expected);
        assert_eq!(hints, self.ledger.take_hints());
    }

    /// A step of a job: by its owner, or by somebody under another token.
    fn work(&mut self) {
        // Mostly where somebody owns.
        let (mut resource, here) = (self.name(), self.here());
        let mut owners = Vec::new();
        for _ in 0..4 {
            owners = self.ledger.read(here, resource.as_str()).map(|view| view.owners).unwrap_or_default();
            if !owners.is_empty() {
                break;
            }
            resource = self.name();
        }
        let token = owners.first().map_or(Token(3), |owner| owner.grant.token);
        let owner = self.ledger.owner_of(resource.as_str(), token);
        let lease = owner.filter(|_| !self.dice.chance(8)).unwrap_or(self.leases[0]);
        let token = if self.dice.chance(8) { Token(token.0 + 1) } else { token };
        let job = self.ledger.jobs(Some(resource.as_str())).pop();
        let through = job.map_or(0, |job| job.through.as_millis());
        let ahead = if self.dice.chance(20) { 61_000 + self.wall / 1_000 } else { self.dice.below(3) };
        let occurrence =
            Occurrence::new((through + ahead).saturating_sub(self.dice.below(2))).expect("before 2200");
        let act = match self.dice.below(8) {
            0..=1 => {
                let plan = Plan::new(["once", "* * * * *"][self.dice.below(2) as usize]).expect("a plan");
                JobAct::Attend { plan, from: occurrence }
            }
            2..=5 => JobAct::Begin(Begin {
                occurrence,
                missed: self.dice.below(3) as u32,
                skipped: self.dice.below(3) as u32,
                again: self.dice.chance(2),
            }),
            _ => {
                let outcome = [JobOutcome::Ran, JobOutcome::Failed][self.dice.below(2) as usize];
                JobAct::Finish {
                    occurrence,
                    outcome,
                    note: Note::of(["", "so"][self.dice.below(2) as usize]),
                }
            }
        };
        let step = JobStep { holder: Holder { lease, resource: resource.clone(), token }, act };
        let expected = self.ledger.job(here, &step);
        let found = self.step().job(&step).expect("an answer");
        self.begun += usize::from(matches!(found, JobSaid::Begun(_)));

        assert_eq!(found, expected, "to {step:?}");
        let views = jobs::jobs(&self.db, 2, Some(&resource)).expect("views");
        assert_eq!(views, self.ledger.jobs(Some(resource.as_str())), "after {step:?}");
    }

    fn look(&mut self) {
        let here = self.here();
        let views = read::resources(&self.db, 2, here.now(), None).expect("views");
        let ledger = &self.ledger;
        let expected: Vec<_> =
            ledger.resources().filter_map(|name| ledger.read(here, name.as_str())).collect();
        assert_eq!(views, expected);

        let history = read::history(&self.db, 2, here.now(), None).expect("a history");
        assert_eq!(history, self.ledger.history(here));

        assert_eq!(jobs::jobs(&self.db, 2, None).expect("views"), self.ledger.jobs(None));
    }

    fn step(&self) -> Step<'_> {
        Step::new(&self.db, 2, StoreTime::from_micros(self.now), self.wall).expect("a step")
    }
}

fn opener() -> Opener {
    Opener {
        lock: Some(Identity { dev: 1, ino: 2 }),
        proof: Proof::On,
        boot: "boot".to_owned(),
        process: Process { pid: 1, started: 1, pid_ns: "pid:[1]".to_owned() },
    }
}

/// The hints that a step sends where everybody listens.
fn hinted(wakes: &[Wake]) -> Vec<Hint> {
    let mut hints = Vec::new();
    for wake in wakes {
        for (position, sleeper) in wake.waiters.iter().take(wake.free + 1).enumerate() {
            let after = if position < wake.free { Duration::ZERO } else { sleeper.step };
            if !sleeper.is_awake {
                hints.push(Hint { lease: sleeper.lease, resource: wake.resource.clone(), after });
            }
        }
    }
    hints
}

#[test]
fn the_history_keeps_its_newest_records() {
    let db = Both::new(0).db;
    let mut step = Step::new(&db, 2, StoreTime::from_micros(1), 1).expect("a step");
    let (seq, asked_at) = (Seq(1), Moment::new(Duration::ZERO, Duration::ZERO));
    let request = |lease, call| {
        let (limit, judged_by, longest) = (Duration::from_secs(1), None, Duration::ZERO);
        Request { lease: LeaseId(lease), seq, asked_at, limit, judged_by, longest, call }
    };
    let open = || Call::Open {
        ttl: Duration::from_secs(1),
        label: Label::new("one").expect("a label"),
        metadata: Metadata::default(),
    };
    let claim = |name| {
        let resource = ResourceName::new(name).expect("a name");
        Call::Claim(vec![Want { resource, tickets: Tickets::ONE, priority: 0 }])
    };
    let _answer = step.apply(&request(1, open()), Some(&opener())).expect("a lease");
    let _answer = step.apply(&request(1, claim("first")), None).expect("a grant");
    let _answer = step.apply(&request(1, claim("second")), None).expect("a grant");

    db.execute("UPDATE namespace SET records = 10000", []).expect("as if there had been more");
    let _answer = step.apply(&request(1, claim("third")), None).expect("a grant");

    let history = read::history(&db, 2, StoreTime::from_micros(1), None).expect("a history");
    let names: Vec<&str> = history.iter().map(|record| record.resource.as_str()).collect();
    assert_eq!(names, ["second", "third"]);
}

#[test]
fn every_answer_hint_and_record_equals_the_ledgers() {
    let (mut granted, mut begun) = (0, 0);
    for seed in 0..SEEDS {
        let mut both = Both::new(seed);
        for _ in 0..STEPS {
            // A failure prints the seed that repeats it.
            let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| both.play()));
            assert!(played.is_ok(), "seed {seed}");
        }
        granted += both.granted;
        begun += both.begun;
    }

    assert!(granted > 1000, "only {granted} grants: the sequences do not test much");
    assert!(begun > 500, "only {begun} runs: the sequences do not test much");
}
