//! Hints are datagrams, sent after the change can be read; where nobody listens they go on.

use super::*;

#[tokio::test]
async fn a_release_wakes_the_head_at_once_and_the_next_a_step_later() {
    let folder = Folder::new();
    let (one, two) = (open(&folder.file()), open(&folder.file()));
    let mut owner = Asker::opened(&one, "owner", LONG).await;
    let mut head = Asker::opened(&two, "head", LONG).await;
    let mut next = Asker::opened(&two, "next", LONG).await;
    let (mut to_head, mut to_next) = (head.hints().await, next.hints().await);
    owner.granted("job").await;
    head.waits("job").await;
    next.waits("job").await;

    owner.release("job").await;

    let at_once = to_head.recv().await.expect("a hint");
    let later = to_next.recv().await.expect("a hint");
    assert_eq!((at_once.resource, at_once.after), (name("job"), Duration::ZERO));
    assert!(later.after >= Duration::from_millis(100) && later.lease == next.lease);
    head.granted("job").await;
}

// req: L1
#[tokio::test]
async fn a_waiter_in_another_process_takes_a_ticket_that_is_freed_at_once() {
    for closes in [false, true] {
        let folder = Folder::new();
        let store = open(&folder.file());
        let mut owner = Asker::opened(&store, "owner", LONG).await;
        owner.granted("job").await;
        let heir = child::Process::start("heir", &folder.file());
        assert_eq!(heir.told, "waits");

        let freed_at = Instant::now();
        match closes {
            true => owner.close().await,
            false => assert_eq!(owner.release("job").await, Released::Free),
        }
        assert_eq!(heir.hears(), "owns");

        let took = freed_at.elapsed();
        println!("it was taken {took:?} after it was freed");
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

#[tokio::test]
async fn where_nobody_listens_the_hint_goes_on_to_the_next_at_once() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    let mut deaf = Asker::opened(&store, "deaf", LONG).await;
    let mut next = Asker::opened(&store, "next", LONG).await;
    let mut to_next = next.hints().await;
    owner.granted("job").await;
    deaf.waits("job").await;
    next.waits("job").await;

    owner.release("job").await;

    assert_eq!(to_next.recv().await.expect("a hint").after, Duration::ZERO);
}

#[tokio::test]
async fn a_path_longer_than_a_socket_address_has_hints_too() {
    let folder = Folder::new();
    let deep = folder.path().join("d".repeat(150));
    std::fs::create_dir(&deep).expect("a folder");
    let store = open(&deep.join("tenure.db"));
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    let mut hints = waiter.hints().await;
    owner.granted("job").await;
    waiter.waits("job").await;

    owner.close().await;

    assert_eq!(hints.recv().await.expect("a hint").after, Duration::ZERO);
}

#[tokio::test]
async fn a_subscription_that_is_repeated_takes_the_place_of_the_earlier_one() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    let mut earlier = waiter.hints().await;
    owner.granted("job").await;
    waiter.waits("job").await;

    // The earlier one is kept, dropped, and dropped while a hint arrives there.
    let mut hints = waiter.hints().await;
    let ended = tokio::time::timeout(LIMIT, earlier.recv()).await.expect("the earlier one ends");
    assert!(ended.is_none());
    drop(hints);
    hints = waiter.hints().await;
    drop(hints);
    owner.release("job").await;
    hints = waiter.hints().await;
    owner.granted("other").await;
    waiter.waits("other").await;
    owner.release("other").await;

    let other = async { while hints.recv().await.expect("a hint").resource != name("other") {} };
    tokio::time::timeout(LIMIT, other).await.expect("the hint arrives");
}

#[tokio::test]
async fn the_hints_of_a_lease_that_is_closed_end() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut owner = Asker::opened(&store, "owner", LONG).await;
    owner.granted("job").await;
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    let mut hints = waiter.hints().await;
    waiter.waits("job").await;

    waiter.close().await;
    owner.release("job").await;

    assert_eq!(tokio::time::timeout(LIMIT, hints.recv()).await.expect("they end"), None);
}

#[tokio::test]
async fn a_store_that_is_dropped_leaves_no_socket() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let waiter = Asker::opened(&store, "waiter", LONG).await;
    let hints = waiter.hints().await;
    assert_eq!(sockets(&folder), 1);

    drop((hints, store));

    let until = Instant::now() + LIMIT;
    while sockets(&folder) > 0 {
        assert!(Instant::now() < until, "the socket is still there");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
