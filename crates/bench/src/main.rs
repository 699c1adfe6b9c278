//! `bench`: measures what Tenure costs, beside what the machine itself costs, and fails where a limit is missed.
//!
//! One file per measurement in `measure`; which store is measured is known in `ground` alone. Figures that time
//! something are ratios to a baseline taken in the same run, so that they carry over from one machine to another.

mod allocations;
mod clock;
mod counted;
mod figure;
mod ground;
mod measure;
mod peers;
mod players;
mod process;
mod rivals;
mod samples;
mod usage;
mod workers;

use std::path::PathBuf;
use std::process::ExitCode;

use figure::Figure;
use ground::{Ground, Length};
use testkit::StoreKind;

/// What can go wrong with a measurement. A limit that is missed is not an error but a figure.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "usage: bench [--only NAME] [--store sqlite|redis|postgres] [--long] [--json FILE]
       bench --peers [--only PEER,...] [--measure NAME,...] [--json FILE] [--publish]";

/// Measures others, too.
const PEERS: &str = "--peers";

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(done) = peers::hidden(&words) {
        return finish(done.map(|()| ExitCode::SUCCESS));
    }
    // Hidden: one of the worker processes that a measurement starts.
    finish(match words.split_first() {
        Some((first, rest)) if first == process::SUBCOMMAND => {
            process::serve(rest).map(|()| ExitCode::SUCCESS)
        }
        // Hidden, too: what time it is, for a command that is started.
        Some((first, [])) if first == measure::NOW => {
            println!("{}", clock::boottime().as_micros());
            Ok(ExitCode::SUCCESS)
        }
        _ if words.iter().any(|word| word == PEERS) => {
            peers::run(&words.into_iter().filter(|word| word != PEERS).collect::<Vec<_>>())
        }
        _ => Wish::parse(&words).and_then(|wish| run(&wish)),
    })
}

fn finish(done: Result<ExitCode, Failure>) -> ExitCode {
    done.unwrap_or_else(|failure| {
        eprintln!("bench: {failure}");
        ExitCode::from(2)
    })
}

/// What is to be measured.
#[derive(Debug)]
struct Wish {
    only: Option<String>,
    stores: Vec<StoreKind>,
    length: Length,
    json: Option<PathBuf>,
}

impl Wish {
    fn parse(words: &[String]) -> Result<Self, Failure> {
        let mut wish =
            Self { only: None, stores: StoreKind::ALL.to_vec(), length: Length::Usual, json: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(USAGE);
            match word.as_str() {
                "--only" => wish.only = Some(value()?.clone()),
                "--store" => wish.stores = vec![StoreKind::of(value()?)?],
                "--long" => wish.length = Length::Long,
                "--json" => wish.json = Some(value()?.into()),
                _ => return Err(USAGE.into()),
            }
        }
        let names: Vec<&str> = measure::ALL.iter().map(|(name, ..)| *name).collect();
        match &wish.only {
            Some(only) if !names.contains(&only.as_str()) => {
                Err(format!("there is no measurement {only:?}; there are: {}", names.join(", ")).into())
            }
            _ => Ok(wish),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }
}

fn run(wish: &Wish) -> Result<ExitCode, Failure> {
    let mut figures: Vec<Figure> = Vec::new();
    for kind in &wish.stores {
        let ground = Ground::open(*kind, wish.length)?;
        for (name, stores, measure) in measure::ALL {
            if stores.contains(kind) && wish.wants(name) {
                eprintln!("measuring {name} on {} ...", kind.name());
                let measured =
                    measure(&ground).map_err(|failure| format!("cannot measure {name}: {failure}"))?;
                figures.extend(measured.into_iter().map(|figure| figure.of(kind.name(), name)));
            }
        }
    }
    print!("{}", figure::table(&figures));
    if let Some(path) = &wish.json {
        std::fs::write(path, figure::json(&figures))?;
    }
    let missed = figures.iter().filter(|figure| figure.is_missed()).count();
    match missed {
        0 => println!("all limits are met"),
        _ => println!("limits missed: {missed}"),
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
