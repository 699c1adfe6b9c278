//! The usual hand-over, which has a short way of its own through the scripts: it leaves what the long one leaves.

use super::*;
use tenure::store::{Hints, Released};
use tenure_core::{Grant, Happened};

/// One that owns "job", and one that waits for it and listens.
struct Pair {
    server: Redis,
    store: RedisStore,
    owner: LeaseId,
    next: LeaseId,
    hints: Hints,
}

impl Pair {
    async fn new() -> Self {
        let server = fresh(Options::new());
        let store = open(&server.url()).await.expect("a store");
        let owner = opened_as(&store, "owner", Duration::from_secs(60)).await;
        let next = opened_as(&store, "next", Duration::from_secs(60)).await;
        let hints = store.hints(next).await.expect("a subscription");
        claimed(&store, owner, "job").await;
        claimed(&store, next, "job").await;
        Self { server, store, owner, next, hints }
    }

    /// By the short way, or in a request that names more than one resource, by the long one. Says the two requests, too.
    async fn hand_over(&mut self, short: bool) -> (Grant, [Request; 2]) {
        let names: &[&str] = if short { &["job"] } else { &["job", "another"] };
        let release = request(self.owner, releasing(names, Leaving::Released));
        let Said::Released(said) = self.store.call(&release).await.expect("an answer").said else { panic!() };
        assert_eq!(said[0], Released::Free);
        let hint = tokio::time::timeout(PATIENCE, self.hints.recv()).await.expect("soon").expect("a hint");
        assert_eq!((hint.resource, hint.after), (name("job"), Duration::ZERO));
        let claim = request(self.next, claiming_all(names, 1));
        let Said::Claimed(said) = self.store.call(&claim).await.expect("an answer").said else { panic!() };
        let Claimed::Granted(grant) = said[0] else { panic!("not granted: {said:?}") };
        (grant, [release, claim])
    }

    fn ask(&self, words: &[&str]) -> String {
        self.server.command(words).text()
    }
}

#[tokio::test]
async fn a_usual_hand_over_leaves_what_any_other_leaves() {
    let mut kept = Vec::new();
    for short in [true, false] {
        let mut pair = Pair::new().await;
        let before = pair.store.read(Some(&name("job"))).await.expect("a view")[0].owners[0].grant;
        let first = pair.ask(&["HGET", "{tenure}:state", &format!("newest:{}\0job", hex(pair.owner))]);
        let first = first.split(' ').next().expect("a number").to_owned();
        let (grant, [release, claim]) = pair.hand_over(short).await;

        assert_eq!((grant.ticket, grant.term.0), (before.ticket, before.term.0 + 1));
        assert!(grant.token > before.token, "{grant:?} after {before:?}");
        let view = pair.store.read(Some(&name("job"))).await.expect("a view").swap_remove(0);
        assert_eq!((view.tickets, view.owners.len(), view.waiters.len()), (1, 1, 0));
        assert_eq!((view.owners[0].worker.as_str(), view.owners[0].grant), ("next", grant));
        let Said::Held(held) = said(&pair.store, pair.next, Call::Held).await else { panic!() };
        assert!(
            held.iter().any(|held| held.resource == name("job") && held.token == grant.token),
            "{held:?}"
        );
        assert_eq!(said(&pair.store, pair.owner, Call::Held).await, Said::Held(vec![]));
        let past: Vec<_> = pair.store.history(Some(&name("job"))).await.expect("entries");
        let past: Vec<_> =
            past.iter().map(|entry| (entry.what, entry.worker.as_str(), entry.grant)).collect();
        let expected = [(Happened::Granted, "owner", before), (Happened::Released, "owner", before)];
        assert_eq!(past, [&expected[..], &[(Happened::Granted, "next", grant)]].concat());

        // The same requests once more: what was given is given again, and a ticket that has another owner is not freed.
        let again = pair.store.call(&claim).await.expect("an answer").said;
        assert!(matches!(&again, Said::Claimed(said) if said[0] == Claimed::Granted(grant)), "{again:?}");
        let again = pair.store.call(&release).await.expect("an answer").said;
        assert!(matches!(&again, Said::Released(said) if said[0] == Released::Stale), "{again:?}");

        // Of the keys: the rows are the same but for what differs from one hand-over to the next.
        let seat = pair.ask(&["HGET", "{tenure}:state", "seat:job\u{0}0"]);
        let record = pair.ask(&["HGET", "{tenure}:state", "resource:job"]);
        for (lease, newest) in
            [(pair.next, format!("{} 0", claim.seq.0)), (pair.owner, format!("{first} {}", release.seq.0))]
        {
            let row = format!("{}\0job", hex(lease));
            assert_eq!(pair.ask(&["HGET", "{tenure}:state", &format!("newest:{row}")]), newest);
            assert_eq!(pair.ask(&["ZSCORE", "{tenure}:newest", &row]), "0");
        }
        let shape = |text: &str, unlike: &[usize]| {
            let words = text.split(' ').enumerate();
            words
                .map(|(index, word)| if unlike.contains(&index) { "*" } else { word })
                .collect::<Vec<_>>()
                .join(" ")
        };
        let words: Vec<&str> = record.split(' ').collect();
        assert_eq!(
            (words[2], words[3]),
            (&*hex(pair.next), &*claim.seq.0.to_string()),
            "who set the tickets"
        );
        kept.push((
            shape(&seat, &[0, 1, 3]),
            shape(&record, &[1, 2, 3, 6]),
            pair.ask(&["ZCARD", "{tenure}:queue"]),
            // One that has been left is forgotten at once, or kept without a place until the lease ends.
            fields(&pair.server, "place:")
                .iter()
                .filter(|field| !pair.ask(&["HGET", "{tenure}:state", field]).is_empty())
                .count(),
        ));
    }
    assert_eq!(kept[0], kept[1]);
}

/// A head that does not listen does not hold up the others: the hint goes on to the next at once.
#[tokio::test]
async fn where_the_head_does_not_listen_the_next_is_woken() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, deaf, next] = [opened(&store).await, opened(&store).await, opened(&store).await];
    let mut hints = store.hints(next).await.expect("a subscription");
    for lease in [owner, deaf, next] {
        claimed(&store, lease, "job").await;
    }

    assert_eq!(
        said(&store, owner, releasing(&["job"], Leaving::Released)).await,
        Said::Released(vec![Released::Free])
    );

    let hint = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
    assert_eq!((hint.resource, hint.after), (name("job"), Duration::ZERO));
}

/// Nor does a second one: the first may hang, and then the third is to look one step later.
#[tokio::test]
async fn where_the_second_does_not_listen_the_third_is_told_to_look_later() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, head, deaf] = [opened(&store).await, opened(&store).await, opened(&store).await];
    let third = opened(&store).await;
    let mut hints = store.hints(third).await.expect("a subscription");
    let _heard = store.hints(head).await.expect("a subscription");
    for lease in [owner, head, deaf, third] {
        claimed(&store, lease, "job").await;
    }

    said(&store, owner, releasing(&["job"], Leaving::Released)).await;

    let hint = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
    assert_eq!(hint.resource, name("job"));
    assert!(hint.after >= Duration::from_millis(100), "{hint:?}");
}

/// Most hand-overs are between two workers, and of one resource with one ticket: each step takes as few commands as that
/// needs.
#[tokio::test]
async fn a_usual_hand_over_takes_few_commands() {
    // The first time the server does not know the scripts yet.
    let mut pair = Pair::new().await;
    pair.hand_over(true).await;
    let Pair { server, store, owner: next, next: owner, .. } = pair;
    let mut hints = store.hints(next).await.expect("a subscription");
    claimed(&store, next, "job").await;

    let before = all_counted(&server);
    said(&store, owner, releasing(&["job"], Leaving::Released)).await;
    let released = all_counted(&server);
    tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
    assert!(matches!(claimed(&store, next, "job").await, Claimed::Granted(_)));
    let granted = all_counted(&server);

    // Each count includes the INFO by which the one before was asked for; a release is sent behind a PING.
    let (release, claim) = (released - before, granted - released);
    assert!(release <= 11 && claim <= 10, "{release} and {claim} commands");
}

/// How many commands the server has run, those of scripts with them.
fn all_counted(server: &Redis) -> u64 {
    let text = server.command(&["INFO", "commandstats"]).text();
    let calls =
        text.lines().filter_map(|line| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok());
    calls.sum()
}

/// Of more than one ticket no hand-over is usual: nothing is asked in vain.
#[tokio::test]
async fn a_release_of_one_of_several_tickets_is_one_request() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let owner = opened(&store).await;
    // The first time the server does not know the scripts yet.
    said(&store, owner, claiming_all(&["job"], 2)).await;
    said(&store, owner, releasing(&["job"], Leaving::Released)).await;

    let before = scripts_run(&server);
    said(&store, owner, claiming_all(&["job"], 2)).await;
    said(&store, owner, releasing(&["job"], Leaving::Released)).await;
    assert_eq!(scripts_run(&server) - before, 2);
}

fn scripts_run(server: &Redis) -> u64 {
    let text = server.command(&["INFO", "commandstats"]).text();
    let calls = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    calls("evalsha") + calls("eval")
}
