//! `bench --peers`: Tenure beside its peers, in one run, on the same servers, each measured in the same way.
//!
//! A peer is a line in `roster` and a candidate: a process that competes with that peer's means and understands one
//! `protocol`, in Rust (`candidates`, `peers/rust`), Python (`peers/python`) or Node (`peers/node`). Nothing else knows
//! peers by name. What only they need is installed by `install` when they are measured.

mod candidate;
mod candidates;
mod cell;
mod chart;
mod install;
mod measure;
mod progress;
mod protocol;
mod report;
mod roster;
mod servers;
mod stage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use self::cell::{Cell, Cells};
use self::install::Kit;
use self::measure::Measurement;
use self::progress::Progress;
use self::report::{Report, Row};
use self::roster::{Peer, Store};
use self::servers::Server;
use self::stage::Stage;
use crate::Failure;

const USAGE: &str = "usage: bench --peers [--only PEER,...] [--measure NAME,...] [--json FILE] [--publish]";

/// A hidden subcommand of this program that belongs here.
pub(crate) fn hidden(words: &[String]) -> Option<Result<(), Failure>> {
    match words.split_first()? {
        (first, rest) if first == candidates::SUBCOMMAND => Some(candidates::play(rest)),
        (first, []) if first == candidates::WORK => candidates::work(),
        _ => None,
    }
}

/// What is to be measured.
struct Wish {
    peers: Vec<Peer>,
    measurements: Vec<Measurement>,
    json: Option<PathBuf>,
    publish: bool,
}

impl Wish {
    fn parse(words: &[String]) -> Result<Self, Failure> {
        let mut wish = Self {
            peers: roster::ALL.to_vec(),
            measurements: measure::ALL.to_vec(),
            json: None,
            publish: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(USAGE);
            match word.as_str() {
                "--only" => wish.peers = chosen(&roster::ALL, value()?, |peer| peer.id)?,
                "--measure" => {
                    wish.measurements = chosen(&measure::ALL, value()?, |measurement| measurement.name)?;
                }
                "--json" => wish.json = Some(value()?.into()),
                "--publish" => wish.publish = true,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(wish)
    }
}

/// Those of all whose names are in the list.
fn chosen<T: Copy>(all: &[T], list: &str, name: impl Fn(&T) -> &'static str) -> Result<Vec<T>, Failure> {
    let wanted: Vec<&str> = list.split(',').collect();
    let known: Vec<&str> = all.iter().map(&name).collect();
    match wanted.iter().find(|wanted| !known.contains(wanted)) {
        Some(unknown) => Err(format!("there is no {unknown:?}; there are: {}", known.join(", ")).into()),
        None => Ok(all.iter().filter(|one| wanted.contains(&name(one))).copied().collect()),
    }
}

pub(crate) fn run(words: &[String]) -> Result<ExitCode, Failure> {
    let wish = Wish::parse(words)?;
    let mut stores: Vec<Store> = wish.peers.iter().map(|peer| peer.store).collect();
    stores.sort();
    stores.dedup();
    let steps = wish.peers.len() * (1 + wish.measurements.len()) + stores.len();
    let progress = Progress::of(steps);

    let mut kit = Kit::new()?;
    let mut reasons: BTreeMap<&str, String> = BTreeMap::new();
    for peer in &wish.peers {
        if let Err(reason) = progress.run(&format!("{}: installing", peer.id), || kit.provide(peer)) {
            reasons.insert(peer.id, reason);
        }
    }
    let mut theatre = Theatre { kit, servers: BTreeMap::new(), found: Mutex::default(), progress };
    for store in stores {
        let is_needed = wish.peers.iter().any(|peer| peer.store == store && !reasons.contains_key(peer.id));
        let started =
            theatre.progress.run(&format!("starting {store:?}"), || is_needed.then(|| Server::start(store)));
        if let Some(server) = started {
            theatre.servers.insert(store, Mutex::new(server?));
        }
    }
    let ready: Vec<&Peer> = wish.peers.iter().filter(|peer| !reasons.contains_key(peer.id)).collect();
    for measurement in wish.measurements.iter().filter(|measurement| measurement.is_exact) {
        ready.iter().for_each(|peer| theatre.play(peer, measurement));
    }
    let coarse: Vec<&Measurement> =
        wish.measurements.iter().filter(|measurement| !measurement.is_exact).collect();
    // What counts seconds and commands runs on all servers at once, and one after the other on each.
    std::thread::scope(|scope| {
        for store in theatre.servers.keys() {
            scope.spawn(|| {
                for measurement in &coarse {
                    let here = ready.iter().filter(|peer| peer.store == *store);
                    here.for_each(|peer| theatre.play(peer, measurement));
                }
            });
        }
    });
    let report = theatre.report(&wish, &reasons);
    publish(&wish, &report)
}

/// The servers, and what was found on them.
struct Theatre {
    kit: Kit,
    servers: BTreeMap<Store, Mutex<Server>>,
    found: Mutex<BTreeMap<&'static str, Cells>>,
    progress: Progress,
}

impl Theatre {
    /// One measurement of one peer. Where it fails its cells say so, and the rest goes on.
    fn play(&self, peer: &Peer, measurement: &Measurement) {
        let Some(server) = self.servers.get(&peer.store) else { return };
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.progress.run(&format!("{}: {}", peer.id, measurement.name), || {
            server.refresh()?;
            (measurement.measure)(&Stage::new(peer, &server, &self.kit, measurement.name)?)
        });
        let found = found.unwrap_or_else(|failure| {
            let text = format!("failed: {failure}");
            measurement.columns.iter().map(|column| (*column, Cell::says(text.clone()))).collect()
        });
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(peer.id).or_default().extend(found);
    }

    fn report(self, wish: &Wish, reasons: &BTreeMap<&str, String>) -> Report {
        let mut found = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let rows = wish.peers.iter().map(|peer| Row {
            peer: *peer,
            cells: match reasons.get(peer.id) {
                Some(reason) => Err(reason.clone()),
                None => Ok(found.remove(peer.id).unwrap_or_default()),
            },
        });
        let rows = rows.collect();
        let mut versions: Vec<String> = Vec::new();
        for server in self.servers.values() {
            versions.push(server.lock().unwrap_or_else(PoisonError::into_inner).version());
        }
        versions.extend(wish.peers.iter().filter_map(|peer| self.kit.version(peer)));
        Report::new(rows, versions)
    }
}

fn publish(wish: &Wish, report: &Report) -> Result<ExitCode, Failure> {
    print!("{}", report.text());
    if let Some(path) = &wish.json {
        std::fs::write(path, report.json())?;
    }
    if wish.publish {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        report.publish(&docs)?;
    }
    let failures = report.failures();
    if failures > 0 {
        println!("measurements that failed: {failures}");
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_chosen_in_the_order_of_the_report_and_an_unknown_one_is_refused() {
        let parse = |line: &str| Wish::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());

        let wish = parse("--only kazoo,tenure-redis --measure crash").expect("known ones");
        let ids: Vec<&str> = wish.peers.iter().map(|peer| peer.id).collect();
        assert_eq!(ids, ["tenure-redis", "kazoo"]);
        assert_eq!(wish.measurements.len(), 1);

        let refused = parse("--only consul").err().expect("an unknown one");
        assert!(
            refused.to_string().contains("there is no \"consul\"; there are: tenure-sqlite"),
            "{refused}"
        );
    }
}
