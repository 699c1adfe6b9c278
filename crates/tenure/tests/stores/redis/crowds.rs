//! Many waiters, many tickets, many resources: what one request does stays small.

use super::*;
use tenure::store::Closing;

async fn claim(store: &RedisStore, lease: LeaseId, tickets: u32) -> Claimed {
    match said(store, lease, claiming_all(&["job"], tickets)).await {
        Said::Claimed(claimed) => claimed[0],
        other => panic!("{other:?}"),
    }
}

/// The queue is a part of the record, so it is bounded. Behind it nothing is written, and everybody looks once per ttl.
#[tokio::test]
async fn the_queue_in_the_record_is_bounded() {
    const PLACES: usize = 64 + 1;
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let owner = opened(&store).await;
    claimed(&store, owner, "job").await;
    let mut waiters = Vec::new();
    for ahead in 0..PLACES {
        let lease = opened(&store).await;
        let Claimed::Waiting(waiting) = claimed(&store, lease, "job").await else { panic!("let in") };
        assert_eq!(waiting.ahead as usize, ahead);
        waiters.push(lease);
    }

    let last = opened(&store).await;
    // The first claim of a later lease notes who has set K last.
    claimed(&store, last, "job").await;
    let before = server.command(&["HGET", "{tenure}:resource/job", "version"]);
    let Claimed::Waiting(waiting) = claimed(&store, last, "job").await else { panic!("let in") };

    assert_eq!((waiting.ahead as usize, queued(&server, "job")), (PLACES, PLACES));
    assert_eq!(waiting.look_again, Duration::from_secs(60));
    assert_eq!(server.command(&["HGET", "{tenure}:resource/job", "version"]), before);
    // A place that becomes free is taken by whoever looks.
    said(&store, waiters[0], releasing(&["job"], Leaving::Released)).await;
    let Claimed::Waiting(waiting) = claimed(&store, last, "job").await else { panic!("let in") };
    assert_eq!((waiting.ahead as usize, queued(&server, "job")), (PLACES - 1, PLACES));
}

/// Waiters that died do not keep the others from their turn, however many they are.
#[tokio::test]
async fn behind_many_dead_waiters_nobody_waits_for_ever() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, last] = [opened(&store).await, opened(&store).await];
    claimed(&store, owner, "job").await;
    for _ in 0..60 {
        let dead = opened(&store).await;
        claimed(&store, dead, "job").await;
        let key = format!("{{tenure}}:lease/{}", hex(dead));
        let mut lease = record(&server, &format!("lease/{}", hex(dead)));
        lease["renewed"] = 1_000_000.into();
        write_record(&server, &key, &lease.to_string());
    }
    // Another process, which knows nothing of them yet.
    let store = open(&server.url()).await.expect("a store");
    assert!(matches!(claimed(&store, last, "job").await, Claimed::Waiting(_)));
    said(&store, owner, releasing(&["job"], Leaving::Released)).await;

    let begun = std::time::Instant::now();
    while !matches!(claimed(&store, last, "job").await, Claimed::Granted(_)) {
        assert!(begun.elapsed() < PATIENCE, "it waits for the dead");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn forty_tickets_are_given_freed_lowered_and_raised_like_one() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let seats = || record(&server, "resource/job")["owners"].as_array().expect("a list").len();
    let mut owners = vec![];
    for ticket in 0..40 {
        let lease = opened(&store).await;
        let Claimed::Granted(grant) = claim(&store, lease, 40).await else { panic!("not granted") };
        assert_eq!(grant.ticket.0, ticket);
        owners.push((lease, grant));
    }
    let waiter = opened(&store).await;
    let mut hints = store.hints(waiter).await.expect("a subscription");
    assert!(matches!(claim(&store, waiter, 40).await, Claimed::Waiting(look) if look.ahead == 0));

    said(&store, owners[7].0, releasing(&["job"], Leaving::Released)).await;
    let hint = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
    assert_eq!(hint.after, Duration::ZERO);
    assert!(matches!(claim(&store, waiter, 40).await, Claimed::Granted(grant) if grant.ticket.0 == 7));

    // Lowered by one who came later: the owners of the highest are asked, and their seats go with them.
    let later = opened(&store).await;
    assert!(matches!(claim(&store, later, 20).await, Claimed::Waiting(_)));
    for (ticket, (lease, _)) in owners.iter().enumerate().filter(|(ticket, _)| *ticket != 7) {
        let Said::Kept { notices, .. } = said(&store, *lease, Call::Renew).await else { panic!("gone") };
        assert_eq!(notices.len(), usize::from(ticket >= 20), "ticket {ticket}");
    }
    for (lease, _) in &owners[20..] {
        said(&store, *lease, releasing(&["job"], Leaving::Released)).await;
    }
    assert_eq!(seats(), 20);
    assert!(matches!(claim(&store, later, 20).await, Claimed::Waiting(_)), "twenty own it still");
    said(&store, owners[0].0, Call::Close(Closing::Left)).await;
    assert!(matches!(claim(&store, later, 20).await, Claimed::Granted(grant) if grant.ticket.0 == 0));

    let latest = opened(&store).await;
    assert!(matches!(claim(&store, latest, 30).await, Claimed::Granted(grant) if grant.ticket.0 == 20));
    let view = store.read(Some(&name("job"))).await.expect("a view").swap_remove(0);
    assert_eq!((view.tickets, view.owners.len()), (30, 21));
}

/// One lease costs one call, whatever it holds; and a worker with many resources gets them quickly.
#[tokio::test]
async fn a_thousand_resources_are_claimed_in_batches_and_renewed_as_one() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    for batch in 0..4 {
        let names: Vec<String> = (0..250).map(|index| format!("job {}", batch * 250 + index)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let claims = said(&store, lease, claiming_all(&names, 1)).await;
        let Said::Claimed(claims) = claims else { panic!("{claims:?}") };
        assert!(claims.iter().all(|claimed| matches!(claimed, Claimed::Granted(_))));
    }

    assert!(matches!(said(&store, lease, Call::Renew).await, Said::Kept { .. }));

    assert!(matches!(said(&store, lease, Call::Held).await, Said::Held(held) if held.len() == 1_000));
    assert_eq!(store.read(None).await.expect("views").len(), 1_000);
    assert_eq!(store.history(None).await.expect("entries").len(), 1_000);
    assert_eq!(said(&store, lease, Call::Close(Closing::Left)).await, Said::Closed);
    assert_eq!(store.history(None).await.expect("entries").len(), 2_000, "with the endings");
}
