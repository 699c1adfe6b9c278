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
