//! A job of every second on real processes, which are killed, stopped, told to leave and cut off at random, in real time. What is
//! checked is what the runs wrote down themselves, keyed by occurrence, and what the store has counted.
//!
//! A short run is part of the suite; `TENURE_CRON_SECONDS=120` makes it a long one.
#![cfg(all(feature = "cron", feature = "sqlite", target_os = "linux"))]

mod child;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure::admin::Admin;
use tenure::jobs::{JobState, JobView};
use testkit::child::Child;
use testkit::dice::Dice;
use testkit::part::Part;
use testkit::proxy::{Link, Proxy};
use testkit::shim::Step;

const WORKERS: usize = 5;
/// How long the blows go on, unless it is set.
const SECONDS: u64 = 15;
const SPAN: &str = "TENURE_CRON_SECONDS";
/// Set it to repeat the blows of a failure; their exact times are the machine's.
const SEED: &str = "TENURE_TEST_SEED";
const TTL: Duration = Duration::from_secs(2);
/// Longer than anything takes that works, also on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(90);

// req: E11
#[test]
fn on_sqlite_no_occurrence_is_run_twice_and_none_is_lost() {
    let folder = testkit::folder();
    let url = format!("sqlite:{}", folder.path().join("tenure.db").display());
    survive("sqlite", &url, |_| (url.clone(), None));
}

// req: E11
#[cfg(feature = "redis")]
#[test]
fn on_redis_no_occurrence_is_run_twice_and_none_is_lost() {
    let server = testkit::redis::Options::new().start();
    survive("redis", &server.url(), |_| {
        let link = Proxy::to(server.port());
        (format!("redis://127.0.0.1:{}", link.port()), Some(link))
    });
}

// req: E11
#[cfg(feature = "postgres")]
#[test]
fn on_postgres_no_occurrence_is_run_twice_and_none_is_lost() {
    let server = testkit::postgres::Options::new().start();
    survive("postgres", &server.url(), |_| {
        let link = Proxy::to(server.port());
        (server.url_at(link.port()), Some(link))
    });
}

// req: E11
#[test]
fn a_clock_that_is_set_forward_has_run_what_is_due_and_one_that_is_set_back_runs_nothing_again() {
    let folder = testkit::folder();
    let clock = testkit::shim::Clock::in_folder(folder.path());
    let part = Part::new("", "memory:", folder.path(), "worker", TTL);
    let book = child::book(folder.path(), "worker");
    let mut child = child::start(&part, Some(&clock));
    let seconds = || child::read(&book).into_iter().map(|(millis, _)| millis / 1000).collect::<Vec<u64>>();
    let last = || seconds().last().copied().unwrap_or(0);
    await_that("the job runs", || seconds().len() >= 2);

    let (before, stepped_at) = (last(), Instant::now());
    clock.step(Step::Forward(Duration::from_secs(30)));
    await_that("it catches up", || last() >= before + 30);
    println!("after a step of 30 s everything that was due had run within {:?}", stepped_at.elapsed());
    clock.step(Step::Back(Duration::from_secs(60)));
    // One may have been under way.
    let runs = seconds().len() + 1;
    std::thread::sleep(Duration::from_secs(4));
    assert!(seconds().len() <= runs, "it is a minute ago, and what was due then has run");
    clock.step(Step::Forward(Duration::from_secs(60)));
    await_that("it goes on", || seconds().len() >= runs + 5);
    child.kill();

    let seconds = seconds();
    assert!(
        seconds.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "each once, and none left out: {seconds:?}"
    );
}

/// Has workers live through blows, each with the store at the URL that `way` gives it.
fn survive(store: &str, url: &str, way: impl Fn(usize) -> (String, Option<Proxy>)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let tools = runtime.block_on(Admin::open(url)).expect("the store opens");
    let look = || runtime.block_on(tools.job("cron:job")).ok().flatten();
    let seconds = std::env::var(SPAN).ok().map_or(SECONDS, |seconds| seconds.parse().expect(SPAN));
    let seed = std::env::var(SEED).ok().map_or_else(now, |seed| seed.parse().expect(SEED));
    println!("{store}: repeat these blows with {SEED}={seed}");
    let folder = testkit::folder();
    let mut fleet = Fleet {
        way,
        folder: folder.path().to_owned(),
        children: BTreeMap::new(),
        next: 0,
        dice: Dice::new(seed),
    };
    (0..WORKERS).for_each(|_| fleet.join());
    await_that("the job runs", || fleet.runs().len() >= 2);

    let blows = fleet.live_through(Duration::from_secs(seconds));
    fleet.calm_down();
    let runs = fleet.runs().len();
    await_that("the job goes on", || fleet.runs().len() >= runs + 5);
    let last = look().expect("an answer").through;
    await_that("what was missed is caught up", || look().is_some_and(|view| !is_behind(&view)));
    fleet.end();

    let view = look().expect("an answer");
    let runs = fleet.runs();
    let mut times: BTreeMap<u64, Vec<&String>> = BTreeMap::new();
    runs.iter().for_each(|(occurrence, key)| times.entry(*occurrence).or_default().push(key));
    let twice: Vec<_> = times.iter().filter(|(_, keys)| keys.len() > 1).collect();
    assert!(twice.is_empty(), "{store}: {twice:?}");
    let first = times.keys().next().expect("some ran") / 1000;
    let running = view.records.last().is_some_and(|record| record.state == JobState::Running);
    let claimed = view.counts.ran + view.counts.failed + view.counts.interrupted + u64::from(running);
    let all = view.through.as_millis() / 1000 - first + 1;
    println!("{store}: {blows:?}; {all} occurrences, {} wrote, {:?}", runs.len(), view.counts);
    assert!(view.through >= last);
    assert_eq!((view.counts.missed, view.counts.skipped), (0, 0), "{store}");
    // The first of all may have been interrupted before it wrote.
    assert!((all..=all + 2).contains(&claimed), "{store}: {claimed} of {all}");
    assert!(all >= seconds, "{store}");
    assert!(claimed >= runs.len() as u64, "{store}");
}

/// Whether something that was due a while ago is not claimed.
fn is_behind(view: &JobView) -> bool {
    view.through.as_millis() + 2_000 < now() / 1000
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("before the end of time")
}

struct Fleet<W> {
    way: W,
    folder: std::path::PathBuf,
    children: BTreeMap<usize, Member>,
    next: usize,
    dice: Dice,
}

struct Member {
    child: Child,
    link: Option<Proxy>,
    /// It is stopped or cut off until then.
    until: Option<Instant>,
}

impl Member {
    fn recover(&mut self) {
        self.until = None;
        self.child.signal(Signal::CONT);
        self.link.iter().for_each(|link| link.set(Link::Pass));
    }
}

impl<W: Fn(usize) -> (String, Option<Proxy>)> Fleet<W> {
    fn join(&mut self) {
        let (url, link) = (self.way)(self.next);
        let part = Part::new("", &url, &self.folder, &self.next.to_string(), TTL);
        self.children.insert(self.next, Member { child: child::start(&part, None), link, until: None });
        self.next += 1;
    }

    /// A blow to one of them again and again, as often as not to the one that wrote last.
    fn live_through(&mut self, span: Duration) -> BTreeMap<&'static str, u32> {
        let (until, mut blows) = (Instant::now() + span, BTreeMap::new());
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(200 + self.dice.below(900)));
            let now = Instant::now();
            for member in
                self.children.values_mut().filter(|member| member.until.is_some_and(|until| until <= now))
            {
                member.recover();
            }
            let well: Vec<usize> = self
                .children
                .iter()
                .filter(|(_, member)| member.until.is_none())
                .map(|(number, _)| *number)
                .collect();
            // Two are spared, so that time does not go by without anybody.
            if well.len() < 3 {
                continue;
            }
            let any = well[self.dice.below(well.len() as u64) as usize];
            let victim = if self.dice.below(4) > 0 {
                self.writer().filter(|number| well.contains(number)).unwrap_or(any)
            } else {
                any
            };
            *blows.entry(self.strike(victim)).or_default() += 1;
        }
        blows
    }

    fn strike(&mut self, victim: usize) -> &'static str {
        let (blow, rest) = (self.dice.below(10), Duration::from_millis(300 + self.dice.below(4000)));
        let member = self.children.get_mut(&victim).expect("one of ours");
        match (blow, &member.link) {
            (0..=3, _) => {
                self.children.remove(&victim).expect("one of ours").child.kill();
                self.join();
                "killed"
            }
            (4, _) => {
                // It leaves by itself, and is gone some time later.
                let member = self.children.remove(&victim).expect("one of ours");
                member.child.signal(Signal::TERM);
                std::thread::spawn(move || {
                    let Member { mut child, link, .. } = member;
                    child.ends();
                    drop(link);
                });
                self.join();
                "told to leave"
            }
            (5..=7, Some(link)) => {
                link.set(if blow == 5 { Link::Refuse } else { Link::Hang });
                member.until = Some(Instant::now() + rest);
                "cut off"
            }
            _ => {
                member.child.stop();
                member.until = Some(Instant::now() + rest);
                "stopped"
            }
        }
    }

    /// Who wrote last.
    fn writer(&self) -> Option<usize> {
        let last = |number: &usize| {
            child::read(&child::book(&self.folder, &number.to_string())).last().map(|run| run.0)
        };
        self.children
            .keys()
            .copied()
            .filter_map(|number| Some((last(&number)?, number)))
            .max()
            .map(|(_, number)| number)
    }

    fn calm_down(&mut self) {
        self.children.values_mut().for_each(Member::recover);
    }

    fn end(&mut self) {
        for (_, mut member) in std::mem::take(&mut self.children) {
            member.child.signal(Signal::TERM);
            member.child.ends();
        }
    }

    /// What all of them wrote.
    fn runs(&self) -> Vec<(u64, String)> {
        (0..self.next)
            .flat_map(|number| child::read(&child::book(&self.folder, &number.to_string())))
            .collect()
    }
}

fn await_that(what: &str, is_so: impl FnMut() -> bool) {
    testkit::eventually(LIMIT, what, is_so);
}
