//! An application's start and stop: competing begins with it, and a signal ends it in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure::Worker;
use tenure::app::{AnyError, App, Module};
use testkit::book::{self, Book, Line};
use testkit::child::{Child, say};
use testkit::part::Part;
use testkit::{Micros, boottime};

use super::await_some;
use super::child::start;
use super::worker::{compete, connect};

/// What comes sooner than this was not waited for.
const TTL: Duration = Duration::from_secs(15);

// req: A1 A2 O8 O11 H7
#[test]
fn on_a_signal_an_application_stops_its_work_cleans_up_and_hands_over_before_it_ends() {
    let roles = ["worker", "application"];
    for (signal, role) in
        [Signal::TERM, Signal::INT].into_iter().flat_map(|signal| roles.map(|role| (signal, role)))
    {
        let folder = testkit::folder();
        let start = |name: &str| -> Child {
            let process = start(&Part::in_folder(role, folder.path(), name, TTL));
            assert_eq!(process.hears(), "competes");
            process
        };
        let began = |name: &str| -> Micros {
            let begin = |line: &Line| if let Line::Begin { at, .. } = line { Some(*at) } else { None };
            await_some("a begin", || book::read(folder.path(), name).iter().find_map(begin))
        };
        let mut first = start("first");
        began("first");
        let _second = start("second");

        let told_at = Instant::now();
        first.signal(signal);
        let status = first.ends();
        let ended_at = boottime();
        let next_at = began("second");

        assert!(status.success(), "{status}");
        assert!(told_at.elapsed() < TTL / 3, "it took {:?}", told_at.elapsed());
        let lines = book::read(folder.path(), "first");
        let cleanups: Vec<Micros> = lines
            .iter()
            .filter_map(|line| if let Line::Cleanup { at } = line { Some(*at) } else { None })
            .collect();
        assert!(matches!(cleanups[..], [at] if at < ended_at && at < next_at), "{cleanups:?}, {next_at}");
        assert!(
            matches!(lines[..], [.., Line::End { .. }, Line::Cleanup { .. }]),
            "the work ends, then the cleanup"
        );
    }
}

// req: A2 A3
#[test]
fn a_signal_before_anything_is_owned_ends_an_application_too() {
    let folder = testkit::folder();
    let part = |name: &str| Part::in_folder("worker", folder.path(), name, TTL);
    let owner = start(&part("owner"));
    assert_eq!(owner.hears(), "competes");
    let mut waiter = start(&part("waiter"));
    assert_eq!(waiter.hears(), "competes");

    let told_at = Instant::now();
    waiter.signal(Signal::TERM);

    assert!(waiter.ends().success());
    assert!(told_at.elapsed() < TTL / 3, "it took {:?}", told_at.elapsed());
    let lines = book::read(folder.path(), "waiter");
    assert_eq!(lines, [], "no callback runs on a worker that did not own");
}

// req: A2
#[test]
fn a_second_interrupt_ends_an_application_that_closes_slowly() {
    let folder = testkit::folder();
    std::fs::write(folder.path().join("slowly"), "").expect("a file");
    let mut slow = start(&Part::in_folder("application", folder.path(), "slow", TTL));
    assert_eq!(slow.hears(), "competes");
    slow.signal(Signal::INT);
    assert_eq!(slow.hears(), "closes");

    // The first one told it to close; it takes a moment until another is listened for.
    let said = await_some("its end", || {
        slow.signal(Signal::INT);
        slow.line(Duration::from_millis(50)).filter(|line| line.contains("says: "))
    });

    assert!(said.contains("the application was ended before it was closed"), "{said}");
    assert!(slow.ends().success());
}

/// An application with a module that competes. It closes slowly when there is a file `slowly`.
pub(crate) async fn applies(part: &Part) {
    let (worker, book) = (connect(part).await, Arc::new(Book::begin(&part.folder, &part.name)));
    let closed = App::new(worker).module(Writing { part: part.clone(), book }).run().await;
    say(&format!("{closed:?}"));
}

struct Writing {
    part: Part,
    book: Arc<Book>,
}

impl Module for Writing {
    async fn on_started(&mut self, worker: &Worker) -> Result<(), AnyError> {
        compete(worker.campaign("job"), self.book.clone());
        say("competes");
        Ok(())
    }

    async fn on_close(self) -> Result<(), AnyError> {
        say("closes");
        if self.part.folder.join("slowly").exists() {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}
