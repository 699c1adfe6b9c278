//! Death is proved by the lock, and only by it; then the ticket moves at once.

use super::child::Process;
use super::*;
use tenure::Worker;
use tenure_core::HistoryEvent;

#[tokio::test]
async fn the_ticket_of_a_killed_worker_is_taken_at_once_whatever_its_lease() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("owner", &folder.file());
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    let mut hints = waiter.hints().await;
    assert_eq!(waiter.waits("job").await.ahead, 0);

    child.kill();
    tokio::time::timeout(LIMIT, waiter.wins("job", &mut hints)).await.expect("no lease is waited for");

    assert!(is_proved_dead(&store).await);
}

// req: L2
#[tokio::test]
async fn a_worker_takes_the_ticket_of_a_killed_one_in_a_fraction_of_its_lease() {
    let folder = Folder::new();
    let mut child = Process::start("working owner", &folder.file());
    let worker = Worker::connect(&format!("sqlite:{}", folder.file().display())).await.expect("a worker");
    let store = open(&folder.file());
    let acquired = tokio::spawn(worker.campaign("job").acquire());
    let until = Instant::now() + LIMIT;
    while store.read(Some(&name("job"))).await.expect("a view")[0].waiters.is_empty() {
        assert!(Instant::now() < until, "it does not wait");
    }
    // Time to see that the owner lives.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!acquired.is_finished());

    child.kill();
    let killed_at = Instant::now();
    let own =
        tokio::time::timeout(LIMIT, acquired).await.expect("in time").expect("no panic").expect("a ticket");

    let took = killed_at.elapsed();
    println!("the ticket moved {took:?} after the kill");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(own.holds() && own.token() > child.told.parse().expect("a token"));
    let history = store.history(None).await.expect("a history");
    assert!(history.iter().any(|entry| entry.what == HistoryEvent::Died));
}

#[tokio::test]
async fn the_ticket_of_a_killed_worker_is_taken_at_once_also_when_those_before_are_killed_with_it() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut children = vec![Process::start("owner", &folder.file())];
    children.extend((0..3).map(|_| Process::start("waiter", &folder.file())));
    let mut last = Asker::opened(&store, "last", LONG).await;
    let mut hints = last.hints().await;
    assert_eq!(last.waits("job").await.ahead, 3);

    children.iter_mut().for_each(Process::kill);

    last.wins("job", &mut hints).await;
    assert!(is_proved_dead(&store).await);
}

#[tokio::test]
async fn a_newcomer_finds_out_at_once_that_the_owner_is_dead() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("owner", &folder.file());
    child.kill();

    let mut newcomer = Asker::opened(&store, "newcomer", LONG).await;
    let mut hints = newcomer.hints().await;
    tokio::time::timeout(LIMIT, newcomer.wins("job", &mut hints)).await.expect("no lease is waited for");

    assert!(is_proved_dead(&store).await);
}

#[tokio::test]
async fn without_proofs_a_lease_runs_out_instead() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("owner without proof", &folder.file());
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    let mut hints = waiter.hints().await;
    child.kill();
    let killed_at = Instant::now();

    waiter.wins("job", &mut hints).await;

    assert!(killed_at.elapsed() > SHORT, "somebody called it dead");
}

#[tokio::test]
async fn a_worker_in_another_pid_namespace_is_proved_dead_by_its_lock_alone() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start_in(&["--pid", "--fork", "--kill-child"], "owner", &folder.file());
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    let mut hints = waiter.hints().await;
    waiter.waits("job").await;

    child.kill();

    waiter.wins("job", &mut hints).await;
}

#[tokio::test]
async fn a_worker_in_another_time_namespace_counts_the_same_time() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let away = ["--time", "--boottime", "100000", "--fork", "--kill-child"];
    let _child = Process::start_in(&away, "owner", &folder.file());

    let views = store.read(None).await.expect("views");

    assert!(views[0].owners[0].left <= LONG && views[0].owners[0].left > LONG / 2, "{views:?}");
}

#[tokio::test]
async fn as_long_as_a_helper_holds_the_lock_nobody_takes_the_worker_for_dead() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut child = Process::start("helped owner", &folder.file());
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    let mut hints = waiter.hints().await;
    waiter.waits("job").await;

    child.kill();
    // The death of the process was noticed long before this is over; its lock was tried, and is held.
    let long = Duration::from_millis(100);
    assert!(tokio::time::timeout(long, hints.recv()).await.is_err(), "somebody called it dead");
    assert!(waiter.waits("job").await.look_again > LONG / 2);
    let helper = child.told.parse().expect("a pid");
    let helper = rustix::process::Pid::from_raw(helper).expect("a pid");
    rustix::process::kill_process(helper, rustix::process::Signal::KILL).expect("it can be killed");

    waiter.wins("job", &mut hints).await;
}

#[tokio::test]
async fn when_the_head_of_the_queue_is_killed_the_next_becomes_the_head() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    owner.granted("job").await;
    let mut child = Process::start("waiter", &folder.file());
    let mut next = Asker::opened(&store, "next", LONG).await;
    let mut hints = next.hints().await;
    assert_eq!(next.waits("job").await.ahead, 1);

    child.kill();
    let hint = tokio::time::timeout(LIMIT, hints.recv()).await.expect("a hint").expect("a hint");

    assert_eq!(hint.resource, name("job"));
    assert_eq!(next.waits("job").await.ahead, 0);
}

#[tokio::test]
async fn a_queue_of_killed_waiters_costs_those_behind_it_nothing() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    owner.granted("job").await;
    let mut children: Vec<Process> = (0..12).map(|_| Process::start("waiter", &folder.file())).collect();
    // Each one ahead of it that counts as alive would cost it 24 s: the longer a lease, the longer the turns.
    let mut last = Asker::opened(&store, "last", Duration::from_secs(3600)).await;
    let mut hints = last.hints().await;
    assert_eq!(last.waits("job").await.ahead, 12);

    children.iter_mut().for_each(Process::kill);
    owner.release("job").await;

    tokio::time::timeout(LIMIT, last.wins("job", &mut hints)).await.expect("no turn of theirs is waited for");
}

#[tokio::test]
async fn a_store_that_is_dropped_lets_no_lock_go() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let other = open(&folder.file());
    let mut owner = Asker::opened(&other, "owner", LONG).await;
    owner.granted("job").await;
    let lease = owner.lease;
    drop(other);

    // The work may still run: this process has not closed the lease.
    assert!(has_lock(&store, lease));
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    waiter.waits("job").await;
    let mut late = Asker { store: &store, lease, seq: 50, judged_by: None };
    late.close().await;
    assert!(!has_lock(&store, lease));
    waiter.granted("job").await;
}

// req: O12
#[tokio::test]
async fn an_ownership_hands_out_its_lock_where_deaths_are_proved() {
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.file().display());
    let worker = Worker::connect(&url).await.expect("a worker");
    let without = Worker::connect(&(url + "?proof=off")).await.expect("a worker");
    let own = worker.campaign("job").acquire().await.expect("a ticket");
    let unproved = without.campaign("other").acquire().await.expect("a ticket");
    let unlimited = worker.campaign("all").tickets(tenure::Tickets::All).acquire().await.expect("a ticket");

    let lock = own.lock().await.expect("it owns").expect("a lock");
    assert!(unproved.lock().await.expect("it owns").is_none());
    assert!(unlimited.lock().await.expect("it owns").is_none());

    // Held through this descriptor alone, when the worker has let go of its own.
    let held = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&lock)));
    let path = std::fs::read_link(held).expect("a path");
    own.release().await;
    drop(unlimited);
    worker.shutdown().await;
    let other = std::fs::File::options().write(true).open(&path).expect("it is still there");
    assert!(!wins(&other));
    drop(lock);
    assert!(wins(&other));
}

#[tokio::test]
async fn an_ownership_that_has_ended_hands_out_no_lock() {
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.file().display());
    let worker = Worker::connect(&url).await.expect("a worker");
    let own = worker.campaign("job").acquire().await.expect("a ticket");
    let tools = tenure::admin::Admin::open(&url).await.expect("a store");

    tools.evict("job", own.token()).await.expect("an answer");
    own.lost().await;

    assert_eq!(own.lock().await.expect_err("it has ended").kind(), tenure::ErrorKind::Refused);
}

/// Whether the ownership of the other process ended because its death was proved.
async fn is_proved_dead(store: &SqliteStore) -> bool {
    let history = store.history(None).await.expect("a history");
    history.iter().any(|entry| entry.what == HistoryEvent::Died && entry.worker.as_str() == "child")
}

fn wins(file: &std::fs::File) -> bool {
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::fcntl_lock(file, lock).is_ok()
}
