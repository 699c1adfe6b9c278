//! Signals: heard by every process that follows the channel, after the change that sent them.

use std::sync::Arc;

use super::child::Process;
use super::*;
use rustix::process::Signal as UnixSignal;
use tenure::store::backend::{Channel, Heard, Signals, Subscriptions};

fn channel(name: &str) -> Channel {
    Channel::new(name)
}

fn signal(to: &[&str], text: &str) -> Signal {
    Signal { to: to.iter().map(|name| channel(name)).collect(), text: text.into() }
}

async fn send(store: &SqliteBackend, signals: Vec<Signal>) {
    assert!(is_done(&commit_one(store, Change { signals, ..Change::default() }).await));
}

async fn listen(store: &SqliteBackend, channels: &[&str]) -> (Arc<dyn Subscriptions>, Signals) {
    let (followed, signals) = store.listen().await.expect("it listens");
    for name in channels {
        followed.follow(channel(name)).await.expect("it follows");
    }
    (followed, signals)
}

async fn next(signals: &mut Signals) -> Heard {
    tokio::time::timeout(LIMIT, signals.recv()).await.expect("a signal").expect("a signal")
}

async fn hears(signals: &mut Signals, text: &str) {
    assert_eq!(next(signals).await.text.as_str(), text);
}

/// Everything of signals that lies on the disk: sockets, channels and links.
fn files(folder: &Folder) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.beside()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                folders.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}

#[tokio::test]
async fn all_processes_that_follow_a_channel_hear_it() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let listeners: Vec<Process> = (0..3).map(|_| Process::start("listener", &folder.file())).collect();
    let (_channels, mut signals) = listen(&store, &["one"]).await;

    let _sender = Process::start("sender", &folder.file());

    for listener in &listeners {
        assert_eq!(listener.child.hears(), "from another process");
    }
    let heard = next(&mut signals).await;
    assert_eq!((heard.channel, heard.text.as_str()), (channel("one"), "from another process"));
    assert_eq!(heard.stamp, find(&store, &Key::Meta).await.stamp);
}

#[tokio::test]
async fn a_signal_goes_to_the_first_channel_that_somebody_follows() {
    let folder = Folder::new();
    let (store, sender) = (open(&folder.file()), open(&folder.file()));
    let (channels, mut signals) = listen(&store, &["one", "two", "three"]).await;

    send(&sender, vec![signal(&["nobody", "two", "one"], "first"), signal(&["nobody"], "lost")]).await;
    send(&sender, vec![signal(&["three", "two"], "second")]).await;
    assert_eq!(next(&mut signals).await.channel, channel("two"));
    assert_eq!(next(&mut signals).await.channel, channel("three"));
    channels.forget(&channel("three"));
    // Twice is once, and it is done after what went before.
    channels.follow(channel("two")).await.expect("it follows");
    send(&sender, vec![signal(&["three", "two"], "third")]).await;

    assert_eq!(next(&mut signals).await.channel, channel("two"));
    send(&sender, vec![signal(&["two"], "last")]).await;
    hears(&mut signals, "last").await;
}

#[tokio::test]
async fn what_a_killed_listener_leaves_behind_is_passed_over_and_removed() {
    for opens in [false, true] {
        let folder = Folder::new();
        let store = open(&folder.file());
        let (_channels, mut signals) = listen(&store, &["two"]).await;
        let before = files(&folder).len();
        let mut dead = Process::start("listener", &folder.file());
        dead.child.kill();
        assert_eq!(files(&folder).len(), before + 3, "its socket, its channel, and its link");

        match opens {
            true => drop(open(&folder.file())),
            false => {
                send(&store, vec![signal(&["one", "two"], "hello")]).await;
                hears(&mut signals, "hello").await;
            }
        }

        testkit::eventually(LIMIT, "everything of it is removed", || files(&folder).len() == before);
        send(&store, vec![signal(&["two"], "still here")]).await;
        hears(&mut signals, "still here").await;
    }
}

#[tokio::test]
async fn a_listener_that_ends_leaves_nothing_behind() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let (channels, signals) = listen(&store, &["one", "two"]).await;
    let (again, mut others) = listen(&store, &["one"]).await;

    drop((channels, signals));
    testkit::eventually(LIMIT, "its files are removed", || files(&folder).len() == 4);
    send(&store, vec![signal(&["two", "one"], "hello")]).await;
    hears(&mut others, "hello").await;
    drop(again);

    assert!(tokio::time::timeout(LIMIT, others.recv()).await.expect("it ends").is_none());
    testkit::eventually(LIMIT, "its files are removed", || files(&folder).len() == 1);
}

#[tokio::test]
async fn a_signal_carries_as_much_as_the_store_says() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let (_channels, mut signals) = listen(&store, &["one"]).await;
    let long = "ä".repeat(store.capabilities().most_signal_bytes / 2);

    send(&store, vec![signal(&["one"], &long), signal(&["one"], "")]).await;

    assert!(next(&mut signals).await.text.as_str() == long);
    hears(&mut signals, "").await;
}

#[tokio::test]
async fn the_signals_of_a_large_commit_all_arrive() {
    let folder = Folder::new();
    let (store, sender) = (open(&folder.file()), open(&folder.file()));
    let (_channels, mut signals) = listen(&store, &["one"]).await;
    let changes: Vec<Change> = (0..250)
        .map(|number| Change {
            signals: vec![signal(&["one"], &"x".repeat(2000))],
            ..write(&resource(&format!("job {number}")), Version::NONE, "{}")
        })
        .collect();

    // The kernel queues ten datagrams for a socket.
    assert!(commit(&sender, &changes).await.done.iter().all(is_done));

    for _ in 0..250 {
        next(&mut signals).await;
    }
}

#[tokio::test]
async fn messages_arrive_in_the_order_in_which_they_were_sent() {
    let folder = Folder::new();
    let (store, sender) = (open(&folder.file()), open(&folder.file()));
    let (_channels, mut signals) = listen(&store, &["one"]).await;

    for number in 0..300 {
        send(&sender, vec![signal(&["one"], &number.to_string())]).await;
    }

    for number in 0..300 {
        hears(&mut signals, &number.to_string()).await;
    }
}

#[tokio::test]
async fn a_listener_that_is_stopped_holds_no_commit_up() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let listener = Process::start("listener", &folder.file());
    listener.child.signal(UnixSignal::STOP);
    let life = life(&store).await;

    let begun = Instant::now();
    let mut version = Version::NONE;
    for _ in 0..200 {
        let change = Change { signals: vec![signal(&["one"], "look")], ..write(&Key::Meta, version, "{}") };
        version = change.put[0].version;
        assert!(is_done(&store.commit(life, &[change]).await.expect("an answer").done[0]));
    }

    // If each waited for it, this would take ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    listener.child.signal(UnixSignal::CONT);
    assert_eq!(listener.child.hears(), "look");
}

// The review's planted bug S2.
#[tokio::test]
async fn whoever_hears_a_signal_sees_the_change_that_sent_it() {
    let folder = Folder::new();
    let (store, sender) = (open(&folder.file()), open(&folder.file()));
    let (_channels, mut signals) = listen(&store, &["one"]).await;
    let (life, mut version) = (life(&store).await, Version::NONE);

    for number in 0..40 {
        // One that is synced takes a while to commit.
        let lasting = number % 2 == 0;
        let signals_sent = vec![signal(&["one"], "look")];
        let changes = [Change { lasting, signals: signals_sent, ..write(&Key::Meta, version, "{}") }];
        version = changes[0].put[0].version;
        let committing = sender.commit(life, &changes);
        let looking = async {
            next(&mut signals).await;
            find(&store, &Key::Meta).await.version
        };
        let (commits, seen) = tokio::join!(committing, looking);

        assert!(is_done(&commits.expect("an answer").done[0]));
        assert_eq!(seen, version, "it was told too early");
    }
}

#[tokio::test]
async fn what_is_not_applied_is_not_told() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let (_channels, mut signals) = listen(&store, &["one"]).await;
    let told = |change: Change, text: &str| Change { signals: vec![signal(&["one"], text)], ..change };
    let now = life(&store).await;
    let conflict = told(write(&Key::Meta, Version(7), "{}"), "conflict");
    let done = told(write(&Key::Ttls, Version::NONE, "{}"), "done");

    let other_life = store.commit(Incarnation(now.0 ^ 1), &[told(Change::default(), "other life")]).await;
    assert!(!is_done(&other_life.expect("an answer").done[0]));
    let commits = store.commit(now, &[conflict, done]).await.expect("an answer").done;

    assert!(!is_done(&commits[0]) && is_done(&commits[1]));
    hears(&mut signals, "done").await;
}

#[tokio::test]
async fn namespaces_do_not_hear_each_other() {
    let folder = Folder::new();
    let one = open(&folder.file());
    let two = SqliteBackend::open(folder.file(), &Namespace::new("two").expect("a name")).expect("it opens");
    let (_channels, mut signals) = listen(&one, &["one"]).await;

    send(&two, vec![signal(&["one"], "from the other")]).await;
    send(&one, vec![signal(&["one"], "from this")]).await;

    hears(&mut signals, "from this").await;
}

#[tokio::test]
async fn garbage_in_the_socket_is_not_heard_and_ends_nothing() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let (_channels, mut signals) = listen(&store, &["one"]).await;
    let socket = files(&folder).into_iter().find(|path| path.extension().is_some_and(|end| end == "sock"));
    let socket = socket.expect("a socket");
    let stranger = std::os::unix::net::UnixDatagram::unbound().expect("a socket");

    for garbage in [&b""[..], b"x", &[0xFF; 9], &[0; 200], b"12345678\x03twohello"] {
        stranger.send_to(garbage, &socket).expect("it is sent");
    }
    send(&store, vec![signal(&["one"], "hello")]).await;

    hears(&mut signals, "hello").await;
}

#[tokio::test]
async fn a_folder_that_was_removed_ends_the_listening_so_that_it_is_begun_again() {
    let folder = Folder::new();
    let store = open(&folder.file());
    let (channels, mut signals) = listen(&store, &["one"]).await;

    std::fs::remove_dir_all(folder.beside()).expect("removed");
    assert!(channels.follow(channel("two")).await.is_err());
    assert!(tokio::time::timeout(LIMIT, signals.recv()).await.expect("it ends").is_none());

    // Opening a lease makes the folder.
    witness(&store).vouch(new_lease()).await.expect("a text");
    let (_channels, mut signals) = listen(&store, &["one"]).await;
    send(&store, vec![signal(&["one"], "hello")]).await;
    hears(&mut signals, "hello").await;
}
