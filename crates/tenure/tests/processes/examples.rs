//! The other examples, run as people run them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use testkit::child::Child;

use super::{LIMIT, await_some, example};

/// Runs one to its end, and returns what it printed.
fn printed(name: &str) -> String {
    let output = Command::new(example(name)).output().expect("it starts");
    assert!(output.status.success(), "{name}: {output:?}");
    String::from_utf8(output.stdout).expect("plain text")
}

// req: A5
#[test]
fn two_of_four_workers_own_and_when_one_leaves_the_next_takes_its_ticket() {
    let printed = printed("two_tickets");

    let mut tickets: Vec<&str> = printed.lines().filter_map(|line| line.split(" has ").nth(1)).collect();
    assert_eq!(tickets.len(), 4, "{printed}");
    // Of two that begin at once either may print first.
    tickets[..2].sort_unstable();
    assert_eq!(tickets[..2], ["ticket 0 (term 1)", "ticket 1 (term 2)"], "{printed}");
    assert_eq!(printed.lines().filter(|line| line.contains("gave it up")).count(), 4, "{printed}");
}

// req: A5
#[test]
fn the_consumers_do_every_job_once() {
    assert!(printed("queue_consumer").ends_with("30 of 30 jobs are done\n"));
}

// req: A5 E10 E11
#[test]
fn each_second_is_reported_once_and_the_next_worker_goes_on_where_the_first_one_left() {
    let printed = printed("singleton_cron");

    let reports: Vec<&str> = printed.lines().filter(|line| line.contains(" reports at ")).collect();
    let time = |line: &str| Some(line.split_once(" at ")?.1.split_once(',')?.0.to_owned());
    let times: Vec<String> = reports.iter().map(|line| time(line).expect("a time")).collect();
    assert!(times.len() >= 6 && times.windows(2).all(|pair| pair[1] > pair[0]), "{printed}");
    let by = |line: &str| line.split(" reports").next().map(str::to_owned);
    assert_ne!(by(reports[0]), by(reports[reports.len() - 1]), "{printed}");
}

// req: A5 E13
#[test]
fn of_five_copies_one_migrates_and_all_serve_after_it() {
    let printed = printed("migration");

    assert_eq!(printed.lines().filter(|line| line.ends_with("has migrated")).count(), 1, "{printed}");
    assert_eq!(printed.lines().filter(|line| line.contains("found it done by copy")).count(), 5, "{printed}");
    assert_eq!(printed.lines().filter(|line| line.ends_with("serves")).count(), 6, "{printed}");
}

// req: A5 A6
#[test]
fn every_copy_of_the_service_answers_one_leads_and_hands_over_when_it_is_told_to_end() {
    let folder = testkit::folder();
    let start = || {
        let mut command = Command::new(example("service"));
        command.arg(format!("sqlite:{}", folder.path().join("tenure.db").display()));
        let service = Child::start(command);
        let line = service.line(LIMIT).expect("it says where");
        let address = line.strip_prefix("listening on ").expect("an address").to_owned();
        (service, address)
    };
    let (mut first, first_at) = start();
    await_some("a leader", || (status(&first_at, "/leader") == 200).then_some(()));
    let (_second, second_at) = start();

    for address in [&first_at, &second_at] {
        assert_eq!((status(address, "/livez"), status(address, "/readyz")), (200, 200));
    }
    assert_eq!(status(&second_at, "/leader"), 503);
    first.signal(Signal::TERM);

    assert!(first.ends().success());
    await_some("another leader", || (status(&second_at, "/leader") == 200).then_some(()));
    let said: Vec<String> = std::iter::from_fn(|| first.line(Duration::ZERO)).collect();
    let last_two = said.split_at(said.len() - 2).1;
    assert_eq!(last_two, ["leads no more", "handed over"], "the work ends before the ticket is free");
}

/// The status with which a path is answered.
fn status(address: &str, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status")
}
