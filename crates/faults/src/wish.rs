//! What was typed.

use std::path::PathBuf;

use testkit::StoreKind;

use crate::Failure;
use crate::fault::Fault;

pub(crate) const USAGE: &str = "\
usage: faults [--store sqlite|redis|postgres] [--only FAULT] [--rounds N | --short] [--seed X] [--json FILE]
              [--pictures FOLDER] [--publish]";

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) stores: Vec<StoreKind>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) length: Length,
    pub(crate) seed: u64,
    pub(crate) json: Option<PathBuf>,
    pub(crate) pictures: Option<PathBuf>,
    pub(crate) publish: bool,
    /// What was typed, for those who want to do it again.
    pub(crate) typed: String,
}

/// How many rounds of each fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Full,
    Rounds(u32),
}

impl Length {
    pub(crate) fn rounds(self, fault: Fault) -> u32 {
        match self {
            Self::Full => fault.rounds(),
            Self::Rounds(rounds) => rounds,
        }
    }
}

impl Wish {
    pub(crate) fn parse(words: &[&str]) -> Result<Self, Failure> {
        let mut wish = Self {
            stores: StoreKind::ALL.to_vec(),
            faults: Fault::ALL.to_vec(),
            length: Length::Full,
            seed: testkit::boottime() % 1_000_000,
            json: None,
            pictures: None,
            publish: false,
            typed: words.join(" "),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or(USAGE);
            match *word {
                "--store" => wish.stores = vec![StoreKind::of(value()?)?],
                "--only" => wish.faults = vec![fault(value()?)?],
                "--rounds" => wish.length = Length::Rounds(number(value()?)?),
                "--short" => wish.length = Length::Rounds(1),
                "--seed" => wish.seed = number(value()?)?,
                "--json" => wish.json = Some(value()?.into()),
                "--pictures" => wish.pictures = Some(value()?.into()),
                "--publish" => wish.publish = true,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(wish)
    }
}

fn number<N: std::str::FromStr>(typed: &str) -> Result<N, Failure> {
    typed.parse().map_err(|_| format!("{typed:?} is not a number\n{USAGE}").into())
}

fn fault(name: &str) -> Result<Fault, Failure> {
    let known = Fault::ALL.into_iter().find(|fault| fault.name() == name);
    known.ok_or_else(|| {
        let names = Fault::ALL.map(Fault::name).join(", ");
        format!("there is no fault {name:?}; there are: {names}").into()
    })
}
