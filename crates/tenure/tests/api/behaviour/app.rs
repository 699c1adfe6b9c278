//! An application of modules: when it starts, when it closes, and that it closes in time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::app::{AnyError, App, Module};
use tenure::{Error, Worker};
use testkit::soon;
use tokio::sync::Notify;

use super::shaky::{Mood, Shaky};

const TTL: Duration = Duration::from_secs(15);

tenure::resources! { enum Job in "app" { Echo = "echo", Report = "report" (tickets: 2) } }

/// What happened, in order; others can wait for it.
#[derive(Clone, Default)]
struct Book {
    lines: Arc<Mutex<Vec<String>>>,
    written: Arc<Notify>,
}

impl Book {
    fn write(&self, line: String) {
        self.lines.lock().expect("no panic").push(line);
        self.written.notify_waiters();
    }

    fn read(&self) -> Vec<String> {
        self.lines.lock().expect("no panic").clone()
    }

    async fn has(&self, line: &str) {
        loop {
            let written = self.written.notified();
            if self.read().iter().any(|there| there == line) {
                return;
            }
            written.await;
        }
    }
}

/// A module that writes down what it is told, and does what it is made to do.
struct Writer {
    name: &'static str,
    book: Book,
    competes: bool,
    starting: Does,
    closing: Does,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Well,
    Fails,
    Panics,
    Hangs,
}

impl Does {
    async fn it(self) -> Result<(), AnyError> {
        match self {
            Self::Well => Ok(()),
            Self::Fails => Err("no luck".into()),
            Self::Panics => panic!("on purpose"),
            Self::Hangs => std::future::pending().await,
        }
    }
}

impl Writer {
    fn new(name: &'static str, book: &Book) -> Self {
        Self { name, book: book.clone(), competes: false, starting: Does::Well, closing: Does::Well }
    }
}

impl Module for Writer {
    async fn on_started(&mut self, worker: &Worker) -> Result<(), AnyError> {
        self.book.write(format!("{} starts", self.name));
        self.starting.it().await?;
        if self.competes {
            let (book, cleaned) = (self.book.clone(), self.book.clone());
            Job::Echo.campaign(worker).obtain(
                move |lead| {
                    book.write("works".to_owned());
                    async move {
                        lead.lost().await;
                    }
                },
                move |_| {
                    cleaned.write("cleans up".to_owned());
                    async {}
                },
            )?;
        }
        Ok(())
    }

    async fn on_close(self) -> Result<(), AnyError> {
        self.book.write(format!("{} closes", self.name));
        self.closing.it().await
    }
}

fn whole(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

// req: A1 A2 A4
#[tokio::test]
async fn modules_compete_once_the_application_has_started_and_close_when_all_work_has_ended() {
    let (store, worker) = Shaky::with_worker(TTL, "one").await;
    let (other, book) = (store.worker(TTL, "other").await, Book::default());
    let first = Writer { competes: true, ..Writer::new("first", &book) };
    let app = App::new(worker).module(first).module(Writer::new("second", &book));
    assert!(store.was_never_asked(), "nothing begins before it runs");

    soon(app.run_until(book.has("works"))).await.expect("it closes well");

    assert_eq!(
        book.read(),
        ["first starts", "second starts", "works", "cleans up", "second closes", "first closes"]
    );
    let free = soon(Job::Echo.campaign(&other).try_acquire()).await.expect("an answer");
    assert!(free.is_some(), "the ticket is free");
}

// req: A4
#[tokio::test]
async fn a_module_that_cannot_start_ends_the_application_and_what_had_begun_is_closed() {
    let (_store, worker) = Shaky::with_worker(TTL, "one").await;
    let book = Book::default();
    let first = Writer { competes: true, ..Writer::new("first", &book) };
    let second = Writer { starting: Does::Fails, ..Writer::new("second", &book) };
    let app = App::new(worker.clone()).module(first).module(second).module(Writer::new("third", &book));

    let error = soon(app.run_until(std::future::pending())).await.expect_err("the second did not start");

    let said = whole(&error);
    assert!(said.starts_with("cannot start `") && said.ends_with("app::Writer`: no luck"), "{said}");
    let book: Vec<String> =
        book.read().into_iter().filter(|line| !matches!(line.as_str(), "works" | "cleans up")).collect();
    assert_eq!(book, ["first starts", "second starts", "second closes", "first closes"]);
    let again = soon(worker.campaign("x").acquire()).await;
    assert!(again.is_err(), "its worker was shut down");
}

// req: A2 A3
#[tokio::test]
async fn an_application_that_is_told_to_end_while_it_starts_closes_what_has_begun() {
    let (_store, worker) = Shaky::with_worker(TTL, "one").await;
    let book = Book::default();
    let second = Writer { starting: Does::Hangs, ..Writer::new("second", &book) };
    let app = App::new(worker).module(Writer::new("first", &book)).module(second);
    let app = app.module(Writer::new("third", &book));

    soon(app.run_until(book.has("second starts"))).await.expect("it closes well");

    assert_eq!(book.read(), ["first starts", "second starts", "second closes", "first closes"]);
}

// req: A2 H12
#[tokio::test]
async fn closing_is_bounded_whatever_the_store_and_the_modules_do() {
    let limit = Duration::from_millis(600);
    for (mood, closing) in [(Mood::Hangs, Does::Well), (Mood::Well, Does::Hangs), (Mood::Hangs, Does::Hangs)]
    {
        let (store, worker) = Shaky::with_worker(TTL, "one").await;
        let book = Book::default();
        let first = Writer { competes: true, closing, ..Writer::new("first", &book) };
        let app = App::new(worker).module(first).close_within(limit);
        let mut told_at = Instant::now();
        let over = async {
            book.has("works").await;
            store.is(mood);
            told_at = Instant::now();
        };

        let closed = soon(app.run_until(over)).await;

        // Not the grace and the ttl, which are 30 s.
        assert!(told_at.elapsed() < TTL / 3, "it took {:?}", told_at.elapsed());
        assert_eq!(book.read(), ["first starts", "works", "cleans up", "first closes"]);
        let said = whole(&closed.expect_err("something hangs"));
        let what = match mood {
            // Whoever waits for the ticket waits for the end of the lease.
            Mood::Hangs => "work did not end within 400ms, or the store did not hear of it",
            _ => "app::Writer` did not close within 600ms",
        };
        assert!(said.ends_with(what), "{said}");
    }
}

// req: A2
#[tokio::test]
async fn a_module_that_fails_to_close_or_panics_keeps_no_other_from_being_closed() {
    for (closing, why) in [(Does::Fails, ": no luck"), (Does::Panics, "panicked with message \"on purpose\"")]
    {
        let (_store, worker) = Shaky::with_worker(TTL, "one").await;
        let book = Book::default();
        let last = Writer { closing, ..Writer::new("last", &book) };

        let app = App::new(worker).module(Writer::new("first", &book)).module(last);
        let error = soon(app.run_until(async {})).await.expect_err("one did not close");

        let said = whole(&error);
        assert!(said.starts_with("cannot close `") && said.ends_with(why), "{said}");
        assert_eq!(book.read(), ["first starts", "last starts", "last closes", "first closes"]);
    }
}

// req: O6
#[tokio::test]
async fn a_typed_resource_brings_its_tickets_to_its_campaigns() {
    let (store, worker) = Shaky::with_worker(TTL, "one").await;
    let (two, three) = (store.worker(TTL, "two").await, store.worker(TTL, "three").await);

    let first = soon(Job::Report.campaign(&worker).try_acquire()).await.expect("an answer");
    let second = soon(Job::Report.campaign(&two).try_acquire()).await.expect("an answer");
    let third = soon(Job::Report.campaign(&three).try_acquire()).await.expect("an answer");

    assert_eq!(Job::ALL.iter().map(|job| job.tickets()).collect::<Vec<_>>(), [1, 2]);
    assert!(first.is_some() && second.is_some() && third.is_none());
}
