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
    let deep = folder.0.join("d".repeat(150));
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
async fn the_hints_of_a_lease_that_is_closed_fall_silent_and_its_socket_goes() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let mut waiter = Asker::opened(&store, "waiter", LONG).await;
    let mut hints = waiter.hints().await;
    let sockets = || {
        let files = std::fs::read_dir(folder.0.join("tenure.db-tenure")).expect("the folder");
        files
            .filter(|file| file.as_ref().is_ok_and(|file| file.path().extension() == Some("sock".as_ref())))
            .count()
    };
    assert_eq!(sockets(), 1);

    waiter.close().await;

    let until = Instant::now() + LIMIT;
    while sockets() > 0 {
        assert!(Instant::now() < until, "the socket is still there");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Whoever finds that a stream has ended subscribes again, and this lease is over.
    assert_eq!(hints.try_recv(), Err(tokio::sync::mpsc::error::TryRecvError::Empty));
}
