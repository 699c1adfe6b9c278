//! A whole run: store after store, fault after fault, round after round.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use testkit::StoreKind;
use testkit::metronome::Metronome;

use crate::Failure;
use crate::controls::{self, Control};
use crate::fault::Fault;
use crate::fleet::Cast;
use crate::ground::{self, Ground};
use crate::judge::{Evidence, Verdict, Window, Written, judge, numbers};
use crate::picture;
use crate::sampler::Sampler;
use crate::stage::{Round, Stage};
use crate::table;
use crate::wish::Wish;

/// Twenty resources: with one ticket, and with three.
const SINGLE: usize = 10;
const TRIPLE: usize = 10;
/// Those for which `tenure run` competes, too: one of each.
const RUN: [u32; 2] = [0, 10];
const LIBRARY: usize = 6;

/// What one fault came to on one store.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) kind: StoreKind,
    pub(crate) fault: Fault,
    pub(crate) rounds: Vec<Round>,
    pub(crate) verdict: Verdict,
    pub(crate) lost: Vec<String>,
    /// For which part of the time somebody waited for a processor.
    pub(crate) stalled: f64,
    /// Whether some thread was late by more than a margin.
    pub(crate) was_late: bool,
    /// How often all rounds were played before and proved nothing.
    pub(crate) inconclusive: u32,
    pub(crate) took: Duration,
}

/// Where somebody waited for a processor for more than this part of the time, nothing is said of what was late.
const BUSY: f64 = 0.8;

/// How often the rounds of one fault may prove nothing because the machine stalled. After that they count as failed.
const MOST_INCONCLUSIVE: u32 = 2;

impl Row {
    /// What must not be, in words.
    pub(crate) fn broken(&self) -> impl Iterator<Item = &String> {
        let Verdict { overlaps, regressions, late, .. } = &self.verdict;
        let late = late.iter().filter(|_| !self.is_busy());
        overlaps.iter().chain(&self.lost).chain(regressions).chain(late)
    }

    /// Whether the machine had so much to do that lateness proves nothing.
    pub(crate) fn is_busy(&self) -> bool {
        self.stalled > BUSY
    }

    /// Whether all that is wrong can come from a machine that held up a worker for longer than its margin. Nothing can make two
    /// hold at once, or a token fall.
    fn is_inconclusive(&self) -> bool {
        let Verdict { overlaps, regressions, late, slow, control, .. } = &self.verdict;
        let lost_is_explained = self.lost.is_empty() || *slow > 0;
        let late_is_explained = late.is_empty() || self.was_late || self.is_busy();
        overlaps.is_empty()
            && regressions.is_empty()
            && *control > 0
            && lost_is_explained
            && late_is_explained
    }

    pub(crate) fn is_good(&self) -> bool {
        self.broken().next().is_none() && self.verdict.control > 0
    }
}

/// What one store came to.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: StoreKind,
    pub(crate) version: String,
    pub(crate) ttl: Duration,
    pub(crate) rows: Vec<Row>,
    pub(crate) controls: Vec<Control>,
    pub(crate) died: Vec<String>,
    pub(crate) took: Duration,
}

/// Runs it all, and says whether every promise held and every control saw something.
pub(crate) fn run(wish: &Wish) -> Result<ExitCode, Failure> {
    let (mut results, mut failed) = (Vec::new(), Vec::new());
    for kind in &wish.stores {
        let mut outcome = Outcome::of(*kind);
        // The kit panics with a sentence; what was seen until then is still worth something.
        let played = catch_unwind(AssertUnwindSafe(|| on(wish, &mut outcome)));
        let played = played.unwrap_or_else(|_| Err("it panicked".into()));
        failed.extend(played.err().map(|failure| format!("{}: {failure}", kind.name())));
        results.push(outcome);
    }
    print!("{}", table::text(&results));
    if let Some(path) = &wish.json {
        std::fs::write(path, table::json_lines(&results, wish))?;
    }
    if wish.publish {
        table::publish(&results, wish)?;
    }
    let good = |result: &Outcome| {
        result.rows.iter().all(Row::is_good) && result.controls.iter().all(|control| control.seen > 0)
    };
    match failed.is_empty() {
        true => Ok(if results.iter().all(good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        false => Err(failed.join("\n").into()),
    }
}

impl Outcome {
    fn of(kind: StoreKind) -> Self {
        Self {
            kind,
            version: kind.name().to_owned(),
            ttl: ground::ttl(kind),
            rows: Vec::new(),
            controls: Vec::new(),
            died: Vec::new(),
            took: Duration::ZERO,
        }
    }
}

/// One store.
fn on(wish: &Wish, outcome: &mut Outcome) -> Result<(), Failure> {
    let (began, kind) = (Instant::now(), outcome.kind);
    let mut progress = Progress::new(kind);
    progress.say("starting");
    let cast = Cast {
        namespace: "faults".into(),
        ttl: ground::ttl(kind),
        tickets: [vec![1; SINGLE], vec![3; TRIPLE]].concat(),
        library: LIBRARY,
        beacons: 3,
        run: RUN.to_vec(),
        plant: None,
    };
    let ground = Ground::open(kind)?;
    outcome.version = ground.version();
    let mut stage = Stage::set(ground, cast)?;
    for fault in wish.faults.iter().filter(|fault| fault.is_beside_the_point(kind).is_none()) {
        let row = play_again(&mut stage, *fault, wish, &mut progress)?;
        for broken in row.broken() {
            eprintln!("faults: {} on {}: {broken}", fault.name(), kind.name());
        }
        if !row.is_good() {
            repeat(&row);
        }
        outcome.rows.push(row);
        outcome.took = began.elapsed();
    }
    let Stage { fleet, ground, .. } = stage;
    outcome.died.clone_from(&fleet.died);
    for died in &outcome.died {
        eprintln!("faults: on {} a process ended by itself: {died}", kind.name());
    }
    match outcome.rows.iter().any(|row| row.broken().next().is_some()) {
        true => eprintln!("faults: what the workers wrote is kept in {}", fleet.keep().display()),
        false => drop(fleet),
    }
    progress.say("controls");
    outcome.controls = controls::run(&ground, ground::ttl(kind))?;
    outcome.took = began.elapsed();
    progress.end();
    Ok(())
}

/// All rounds of one fault, once more if they prove nothing.
fn play_again(stage: &mut Stage, fault: Fault, wish: &Wish, progress: &mut Progress) -> Result<Row, Failure> {
    let mut row = play(stage, fault, wish, progress)?;
    while !row.is_good() && row.is_inconclusive() && row.inconclusive < MOST_INCONCLUSIVE {
        let inconclusive = row.inconclusive + 1;
        progress.say(&format!("{}: the machine stalled, again", fault.name()));
        row = Row { inconclusive, ..play(stage, fault, wish, progress)? };
    }
    Ok(row)
}

/// All rounds of one fault.
fn play(stage: &mut Stage, fault: Fault, wish: &Wish, progress: &mut Progress) -> Result<Row, Failure> {
    let (began, kind) = (Instant::now(), stage.ground.kind());
    stage.until_full()?;
    let before = stage.fleet.written()?;
    let metronome = Metronome::start();
    let (mut rounds, count) = (Vec::new(), wish.length.rounds(fault));
    for number in 0..count {
        progress.say(&format!("{} {}/{count}", fault.name(), number + 1));
        let seed = wish.seed + u64::from(number);
        let drawn = wish.pictures.as_ref().filter(|_| number == 0);
        let sampler = drawn.map(|_| Sampler::start(stage.url(), stage.fleet.cast.namespace.clone()));
        let round = stage.play(fault, seed)?;
        if let (Some(folder), Some(sampler)) = (drawn, sampler) {
            draw(stage, &round, &sampler.stop(), folder)?;
        }
        rounds.push(round);
    }
    let late = metronome.stop();
    let written = stage.fleet.written()?;
    let windows: Vec<Window> = rounds.iter().map(|round: &Round| round.window.clone()).collect();
    let tickets = &stage.fleet.cast.tickets;
    let evidence = Evidence {
        written: &written,
        tickets,
        windows: &windows,
        late: &late,
        longer: stage.fleet.cast.ttl * 2,
    };
    let mut verdict = judge(&evidence);
    let count = |of: fn(&Written) -> u64| before.iter().map(of).sum::<u64>();
    verdict.refused -= count(|written| written.record.refused);
    verdict.slow -= count(|written| written.record.slow);
    // A store that forgets begins its terms anew; then the books alone say whether tokens rose.
    if !fault.forgets() {
        verdict.regressions.extend(numbers(&stage.grants()?, &newest(&before), &written));
    }
    verdict.late.extend(rounds.iter().flat_map(|round| round.crowded.clone()));
    let span = windows.first().zip(windows.last()).map(|(first, last)| (first.from, last.to));
    let stalled = span.map_or(0.0, |(from, to)| {
        late.stalled(from, to).as_secs_f64() / Duration::from_micros(to - from).as_secs_f64()
    });
    let mut lost: Vec<String> = rounds.iter_mut().flat_map(|round| std::mem::take(&mut round.lost)).collect();
    if let (Some(last), 1..) = (lost.last_mut(), verdict.slow) {
        last.push_str(&format!("; the machine held up {} writes for longer than the margin", verdict.slow));
    }
    // As in `Timing::new`.
    let was_late = late.worst() > stage.fleet.cast.ttl / 10;
    let took = began.elapsed();
    Ok(Row { kind, fault, rounds, verdict, lost, stalled, was_late, inconclusive: 0, took })
}

/// The newest token of each resource.
fn newest(written: &[Written]) -> BTreeMap<u32, u64> {
    let mut newest = BTreeMap::new();
    for Written { record, .. } in written {
        let token: &mut u64 = newest.entry(record.resource).or_default();
        *token = record.token.max(*token);
    }
    newest
}

fn draw(
    stage: &Stage,
    round: &Round,
    samples: &[crate::sampler::Sample],
    folder: &Path,
) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)?;
    let name = format!("{}-{}.svg", stage.ground.kind().name(), round.fault.name());
    let path: PathBuf = folder.join(name);
    let drawn =
        picture::draw(stage.ground.kind(), round, &stage.fleet.written()?, samples, stage.fleet.cast.ttl);
    Ok(std::fs::write(path, drawn)?)
}

/// Says how to play the rounds again.
fn repeat(row: &Row) {
    let seeds: Vec<u64> = row.rounds.iter().map(|round| round.seed).collect();
    if let (Some(first), count) = (seeds.first(), seeds.len()) {
        let (store, fault) = (row.kind.name(), row.fault.name());
        eprintln!(
            "faults: again: scripts/faults --store {store} --only {fault} --seed {first} --rounds {count}"
        );
        if row.verdict.control == 0 {
            eprintln!("faults: the control saw nothing: {fault} on {store} moved no ownership");
        }
    }
}

/// A line for people while it runs.
struct Progress {
    kind: StoreKind,
    began: Instant,
    is_terminal: bool,
    last: String,
}

impl Progress {
    fn new(kind: StoreKind) -> Self {
        Self {
            kind,
            began: Instant::now(),
            is_terminal: std::io::stderr().is_terminal(),
            last: String::new(),
        }
    }

    fn say(&mut self, what: &str) {
        let (store, elapsed) = (self.kind.name(), self.began.elapsed().as_secs());
        if self.is_terminal {
            eprint!("\r\x1b[K{store}: {what}, {elapsed} s");
            let _gone = std::io::stderr().flush();
        } else if what.split(' ').next() != self.last.split(' ').next() {
            // Into a log only what is new.
            eprintln!("{store}: {what}, {elapsed} s");
        }
        what.clone_into(&mut self.last);
    }

    fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict, lost: usize, was_late: bool) -> Row {
        Row {
            kind: StoreKind::Sqlite,
            fault: Fault::ALL[0],
            rounds: Vec::new(),
            verdict: Verdict { control: 1, ..verdict },
            lost: vec![String::new(); lost],
            stalled: 0.0,
            was_late,
            inconclusive: 0,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn a_stall_excuses_what_was_late_and_never_an_overlap() {
        let late = || Verdict { late: vec![String::new()], ..Verdict::default() };
        let slow = || Verdict { slow: 1, ..Verdict::default() };
        let overlap = Verdict { overlaps: vec![String::new()], ..slow() };
        let falls = Verdict { regressions: vec![String::new()], ..slow() };

        assert!(row(late(), 0, true).is_inconclusive() && !row(late(), 0, false).is_inconclusive());
        assert!(row(slow(), 1, true).is_inconclusive());
        assert!(!row(Verdict::default(), 1, true).is_inconclusive(), "no write was held up");
        assert!(!row(overlap, 0, true).is_inconclusive() && !row(falls, 0, true).is_inconclusive());
    }
}
