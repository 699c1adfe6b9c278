//! The command of a `tenure run`: it owns as long as it lives, and writes so down. What it may do is for its guard to say.

use std::path::Path;
use std::time::Duration;

use testkit::boottime;

use crate::Failure;
use crate::book::{Book, Kind, Record};
use crate::list::{Entry, List, Refused};
use crate::part::{self, Rule};
use crate::worker::{add, add_under};

const TICK: Duration = Duration::from_millis(2);
/// An entry every so many ticks.
const ENTRY: u64 = 8;

/// Lives until it is ended from outside.
pub(crate) fn play(scene: &Path) -> Result<(), Failure> {
    // The first thing of all: from here on it counts as alive.
    let began = boottime();
    let told = |name: &str| std::env::var(name).map_err(|_| format!("{name} is missing"));
    let (worker, token) = (told("TENURE_WORKER")?, told("TENURE_TOKEN")?.parse()?);
    let resource = part::number(&told("TENURE_RESOURCE")?).ok_or("a resource of another name")?;
    let (ticket, term) = (told("TENURE_TICKET")?.parse()?, told("TENURE_TERM")?.parse()?);
    let book = Book::begin(&part::books(scene).join(format!("{worker}+{}", std::process::id())))?;
    let record = Record {
        kind: Kind::Ownership,
        resource,
        ticket,
        term,
        token,
        began,
        last: began,
        ended: None,
        written: 0,
        refused: 0,
        slow: 0,
    };
    let page = book.enter(&record)?;
    let rule = Rule::of(scene)?;
    let (mut written, mut refused) = (0, 0);
    for tick in 0u64.. {
        std::thread::sleep(TICK);
        page.held(boottime())?;
        if tick % ENTRY != 0 {
            continue;
        }
        let next = Entry { token, number: written + 1 };
        let ruling = rule.look();
        let list = List::of(&part::lists(scene), ruling.round, resource, ticket);
        let done = match ruling.checks_tokens {
            true => add_under(&list, next, || true),
            false => add(&list, next, || true, Duration::ZERO),
        };
        match done {
            Ok(_) => {
                written += 1;
                page.written(written)?;
            }
            Err(Refused::Late) => {
                refused += 1;
                page.troubled(refused, 0)?;
            }
            Err(Refused::Busy) => {}
            Err(Refused::Broken(error)) => return Err(error.into()),
        }
    }
    Ok(())
}
