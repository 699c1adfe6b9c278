//! Five workers, a job of every second, ten minutes of simulated time; owners are shut down, die and are cut off by chance.
//! What is checked is what the runs themselves wrote down, and what the store has counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::jobs::cron::{Cron, Misfire, Tick};
use tenure::store::OpenStore;
use tenure::{Campaign, Timing, Worker};
use tokio::runtime::Runtime;

use super::links::Link;
use super::{Book, Run, SOON, Stage};

const WORKERS: usize = 5;
/// How much of simulated time each case takes.
const SPAN: u64 = 600;
/// Simulated and real time of a step: so there are 50 simulated seconds in one real one.
const STEP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1));

// req: E11
#[test]
fn whatever_fails_with_all_no_occurrence_is_claimed_twice_and_none_is_lost_or_missed() {
    no_occurrence_is_claimed_twice(1, Misfire::All { within: Duration::from_secs(3600) });
}

// req: E11
#[test]
fn whatever_fails_with_once_no_occurrence_is_claimed_twice_and_none_is_lost() {
    no_occurrence_is_claimed_twice(2, Misfire::Once);
}

// req: E11
#[test]
fn whatever_fails_with_skip_no_occurrence_is_claimed_twice() {
    no_occurrence_is_claimed_twice(3, Misfire::Skip);
}

fn no_occurrence_is_claimed_twice(seed: u64, misfire: Misfire) {
    let mut fleet = Fleet::new(seed, Duty::Job(misfire));
    fleet.live_through(SPAN);
    fleet.calm_down();

    let told = format!("seed {seed}, {misfire:?}: {:?}", fleet.faults);
    assert!(fleet.faults.iter().all(|count| *count > 0), "nothing was tried: {told}");
    let runs = fleet.book.runs().clone();
    let twice: Vec<&Run> = runs.iter().filter(|run| times(&runs, run.second) > 1).collect();
    assert!(twice.is_empty(), "{told}: {twice:?}");
    let view = fleet.job();
    let counts = view.counts;
    // Since the job was taken up for the first time, when the clock showed 3600.
    let all = view.through.as_millis() / 1000 - 3600;
    let claimed = counts.ran + counts.failed + counts.interrupted + u64::from(fleet.is_running(&view));
    assert!(claimed >= runs.len() as u64, "{told}: {claimed} claimed, {} ran", runs.len());
    if misfire != Misfire::Skip {
        assert_eq!(claimed + counts.missed + counts.skipped, all, "{told}: {counts:?}");
        assert!(all >= SPAN, "{told}");
    }
    if let Misfire::All { .. } = misfire {
        assert_eq!((claimed, counts.missed, counts.skipped), (all, 0, 0), "{told}");
    }
    assert!(counts.interrupted > 0, "{told}: those of dead owners are listed");
    println!("{told}: {all} occurrences, {} ran, {counts:?}", runs.len());
}

/// The control: asking at each tick who owns is not enough.
// req: E10
#[test]
fn with_the_gate_alone_occurrences_are_doubled_or_lost() {
    let mut fleet = Fleet::new(4, Duty::Gate);
    fleet.live_through(SPAN / 2);
    fleet.calm_down();

    let seconds = fleet.book.seconds();
    let (first, last) = (seconds.iter().min().expect("some ran"), seconds.iter().max().expect("some ran"));
    let runs = fleet.book.runs().clone();
    let doubled = (*first..=*last).filter(|second| times(&runs, *second) > 1).count();
    let lost = (*first..=*last).filter(|second| times(&runs, *second) == 0).count();
    println!("with the gate alone: {doubled} doubled, {lost} lost of {}", last - first + 1);
    assert!(doubled + lost > 0);
}

fn times(runs: &[Run], second: u64) -> usize {
    runs.iter().filter(|run| run.second == second).count()
}

#[derive(Clone, Copy, Debug)]
enum Duty {
    Job(Misfire),
    /// A scheduler of one's own that asks at each tick.
    Gate,
}

/// The workers, each in a runtime of its own, as if it were a process.
struct Fleet {
    stage: Stage,
    book: Book,
    duty: Duty,
    members: BTreeMap<usize, Member>,
    next: usize,
    chance: u64,
    /// How often a worker was shut down, died, and was cut off.
    faults: [u32; 3],
}

struct Member {
    link: Arc<Link>,
    worker: Worker,
    runtime: Runtime,
    /// When it is connected again.
    cut_until: Option<u64>,
    does: Does,
}

enum Does {
    Job(Cron),
    Gate(Campaign),
}

impl Does {
    fn is_owner(&self) -> bool {
        match self {
            Self::Job(job) => job.is_owner(),
            Self::Gate(campaign) => campaign.is_owner(),
        }
    }
}

impl Fleet {
    fn new(seed: u64, duty: Duty) -> Self {
        let mut fleet = Self {
            stage: Stage::new(),
            book: Book::default(),
            duty,
            members: BTreeMap::new(),
            next: 0,
            chance: seed,
            faults: [0; 3],
        };
        (0..WORKERS).for_each(|_| fleet.join());
        fleet
    }

    fn join(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let link = Link::to(&self.stage.store);
        let opened = OpenStore::by_hand(link.clone(), self.stage.clock.clone()).expect("a thread");
        let label = format!("worker {}", self.next);
        let timing = Timing::new(Duration::from_secs(5)).expect("sound");
        let (book, duty) = (self.book.clone(), self.duty);
        let (worker, does) = runtime.block_on(async {
            let worker = Worker::on(opened).label(label).timing(timing).connect().await.expect("a worker");
            let does = match duty {
                Duty::Job(misfire) => {
                    let job = worker.cron("job", "* * * * * *").misfire(misfire);
                    Does::Job(job.run(move |tick| work(tick, book.clone())).expect("it begins"))
                }
                Duty::Gate => {
                    let campaign = worker.campaign("cron:job").obtain(async |_| {}, async |_| {});
                    Does::Gate(campaign.expect("it begins"))
                }
            };
            (worker, does)
        });
        self.members.insert(self.next, Member { link, worker, runtime, cut_until: None, does });
        self.next += 1;
    }

    /// Lets so many seconds go by, with a fault every three on average.
    fn live_through(&mut self, seconds: u64) {
        let (mut step, from) = (0, self.now());
        let mut ticked = from;
        while self.now() < from + seconds * 1000 {
            self.step();
            self.tick(&mut ticked);
            let now = self.now();
            for member in
                self.members.values_mut().filter(|member| member.cut_until.is_some_and(|until| until <= now))
            {
                member.link.mend();
                member.cut_until = None;
            }
            step += 1;
            if step % 20 == 0 && self.below(3) == 0 {
                self.fail();
            }
        }
    }

    /// One of them fails, rather one that owns; in the place of one that is gone comes another.
    fn fail(&mut self) {
        let owner = self.members.iter().find(|(_, member)| member.does.is_owner()).map(|(number, _)| *number);
        let nth = self.below(WORKERS as u64) as usize;
        let any = *self.members.keys().nth(nth).expect("there are as many as ever");
        let victim = if self.below(4) > 0 { owner.unwrap_or(any) } else { any };
        let (fault, seconds) = (self.below(3), 1 + self.below(12));
        let until = self.now() + seconds * 1000;
        self.faults[fault as usize] += 1;
        if fault == 2 {
            let member = self.members.get_mut(&victim).expect("it is there");
            member.link.cut();
            if self.chance.is_multiple_of(2) {
                member.link.lose_answers(1);
            }
            member.cut_until = Some(until);
            return;
        }
        let member = self.members.remove(&victim).expect("it is there");
        if fault == 0 {
            // A deploy: it leaves, and its process ends when it has.
            std::thread::spawn(move || {
                member.runtime.block_on(member.worker.shutdown());
                member.runtime.shutdown_background();
            });
        } else {
            // Dead: from one moment to the next nothing of it runs, and nobody hears of it.
            member.link.cut();
            member.runtime.shutdown_background();
        }
        self.join();
    }

    /// All links are mended, and everybody has the time to come to rest.
    fn calm_down(&mut self) {
        self.members.values().for_each(|member| member.link.mend());
        let (from, deadline, mut ticked) = (self.now(), Instant::now() + SOON, self.now());
        let runs = self.book.len();
        while self.now() < from + 60_000 || self.book.len() < runs + 5 {
            assert!(Instant::now() < deadline, "nobody runs it any more");
            self.step();
            self.tick(&mut ticked);
        }
    }

    /// With the gate each worker looks at the clock for itself, as schedulers do: not all at the same moment.
    fn tick(&self, ticked: &mut u64) {
        let (before, now) = (*ticked / 1000, self.now() / 1000);
        *ticked = self.now();
        for (second, member) in
            (before + 1..=now).flat_map(|second| self.members.values().map(move |member| (second, member)))
        {
            if let Does::Gate(campaign) = &member.does
                && let Some(own) = campaign.gate()
            {
                let run = Run { second, attempt: 1, key: String::new(), token: own.token() };
                self.book.runs().push(run);
            }
        }
    }

    fn step(&self) {
        self.stage.clock.advance(STEP.0);
        std::thread::sleep(STEP.1);
    }

    /// In milliseconds.
    fn now(&self) -> u64 {
        self.stage.clock.shows().as_millis() as u64
    }

    fn job(&self) -> tenure::jobs::JobView {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(self.stage.job("cron:job"))
    }

    fn is_running(&self, view: &tenure::jobs::JobView) -> bool {
        view.records.last().is_some_and(|latest| latest.state == tenure::jobs::JobState::Running)
    }

    /// Xorshift; a seed brings the same faults again, if not the same races.
    fn below(&mut self, limit: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % limit
    }
}

async fn work(tick: Tick, book: Book) {
    book.write(&tick);
    // Some of them are in the middle of it when something happens.
    tokio::time::sleep(Duration::from_millis(2)).await;
}
