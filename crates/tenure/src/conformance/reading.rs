//! `read` and `history`, and values that a careless translation would mangle.

use std::collections::BTreeSet;

use tenure_core::{Closing, HistoryEvent, Leaving, Metadata, Released, Said, Term};

use super::Fixture;
use super::world::*;

/// Names that are valid, and that a store which splices, folds or trims them would mistake.
pub(super) const HOSTILE: [&str; 24] = [
    "'",
    "\"",
    "`",
    "\\",
    "a'; drop table lease; --",
    "{",
    "}",
    "{ns}:x",
    "{tenure}:state",
    "[1]",
    "%",
    "%s%n",
    "_",
    "*",
    "?",
    "../x",
    "/",
    "a b",
    "$1",
    ":",
    "ü",
    "u\u{308}",
    "日本語",
    "🦀",
];

/// Everything that people ask for, of those who own and those who wait.
pub async fn reading_shows_owners_and_waiters(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let metadata = Metadata::new(r#"{"zone":"b"}"#).expect("valid metadata");
    let (a, b) = (fresh(), world.open("b").await);
    assert_eq!(world.open_with(a, "a", LONG, &metadata).await, Said::Opened);
    let ends_at = world.answered_at() + LONG;
    let grant = granted(world.claim(a).await);
    let since = world.answered_at();
    waiting(world.claim(b).await);
    world.pass(SHORT).await;
    world.renew(b).await;
    let renewed_at = world.answered_at();

    let before = world.now().await;
    let view = world.view().await;
    let took = world.now().await.since(before) + TOLERANCE;

    assert_eq!((view.resource.as_str(), view.tickets), (JOB, 1));
    let [owner] = &view.owners[..] else { panic!("not one owner: {view:?}") };
    assert_eq!((owner.worker.as_str(), &owner.metadata, owner.grant), ("a", &metadata, grant));
    assert!(owner.owned_for.abs_diff(before.since(since)) <= took, "{owner:?}");
    assert!(owner.left.abs_diff(ends_at.since(before)) <= took, "{owner:?}");
    let [waiter] = &view.waiters[..] else { panic!("not one waiter: {view:?}") };
    assert_eq!((waiter.worker.as_str(), &waiter.metadata), ("b", &Metadata::default()));
    assert!(waiter.left.abs_diff((renewed_at + LONG).since(before)) <= took, "{waiter:?}");
}

/// Who is dead neither owns nor waits, also before anybody has come across it.
pub async fn reading_leaves_out_the_dead(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let [a, _, c, _] = world.crowd(["a", "b", "c", "d"], 2).await;
    let runs_out = world.open_for("e", SHORT).await;
    world.claim_with(runs_out, 2, 0).await;

    world.close(a, Closing::Left).await;
    world.close(c, Closing::Left).await;
    world.pass(SHORT).await;

    assert_eq!((world.owners().await, world.waiters().await), (vec!["b".into()], vec!["d".into()]));
}

/// All that were ever claimed are listed, by name; one that never was is not there.
pub async fn reading_lists_all_that_were_ever_claimed_by_name(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    for resource in ["b", "a-b", "B", "a"] {
        granted(world.claim_at(a, resource).await);
    }
    world.leave(a, "b", Leaving::Released).await;
    world.close(a, Closing::Left).await;

    assert_eq!(world.all_names().await, ["B", "a", "a-b", "b"]);
    assert!(answered(world.store.read(Some(&name("never")))).await.is_empty());
    assert!(answered(world.store.history(Some(&name("never")))).await.is_empty());
}

/// Every grant and every ending, each with its reason.
pub async fn the_history_has_every_grant_and_every_ending_with_its_reason(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    for how in [Leaving::Released, Leaving::SteppedDown, Leaving::Failed] {
        granted(world.claim(a).await);
        world.pass(TOLERANCE).await;
        world.leave(a, JOB, how).await;
        world.pass(TOLERANCE).await;
    }
    let token = granted(world.claim(a).await).token;
    world.pass(TOLERANCE).await;
    world.evict(token).await;
    for why in [Closing::Left, Closing::Expired, Closing::Proved] {
        world.pass(TOLERANCE).await;
        let b = world.own("b").await;
        world.pass(TOLERANCE).await;
        world.close(b, why).await;
    }
    world.own_for("c", SHORT).await;
    world.pass(SHORT).await;
    world.own("d").await;

    use HistoryEvent::*;
    let expected = [
        ("a", Granted),
        ("a", Released),
        ("a", Granted),
        ("a", SteppedDown),
        ("a", Granted),
        ("a", Failed),
        ("a", Granted),
        ("a", Evicted),
        ("b", Granted),
        ("b", Released),
        ("b", Granted),
        ("b", Expired),
        ("b", Granted),
        ("b", Died),
        ("c", Granted),
        ("c", Expired),
        ("d", Granted),
    ];
    assert_eq!(world.history().await, expected.map(|(worker, what)| (worker.to_string(), what)));
}

/// An entry says how long ago it was, and whose ownership it was, by ticket, term and token.
pub async fn an_entry_says_when_what_happened_to_whose_ownership(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open("a").await;
    let grant = granted(world.claim(a).await);
    let granted_at = world.answered_at();
    granted(world.claim_at(a, "other").await);
    world.pass(SHORT / 5).await;
    world.release(a).await;
    let released_at = world.answered_at();
    world.pass(SHORT / 5).await;

    let before = world.now().await;
    let entries = world.entries().await;
    let took = world.now().await.since(before) + TOLERANCE;

    assert_eq!(entries.len(), 2, "{entries:?}");
    for (entry, (what, at)) in
        entries.iter().zip([(HistoryEvent::Granted, granted_at), (HistoryEvent::Released, released_at)])
    {
        assert_eq!((entry.resource.as_str(), entry.worker.as_str()), (JOB, "a"));
        assert_eq!((entry.grant, entry.what), (grant, what));
        assert!(entry.ago.abs_diff(before.since(at)) <= took, "{entry:?}");
    }
    assert_eq!(answered(world.store.history(None)).await.len(), 3);
}

/// An ending that nobody has come across is read as it will be written: with the time at which the lease ended.
pub async fn an_ending_that_nobody_has_come_across_is_read_at_its_place_in_time(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", SHORT).await;
    world.renew(a).await;
    let ran_out_at = world.answered_at() + SHORT;
    world.pass_until(ran_out_at + STEP).await;
    let b = world.open("b").await;
    world.claim_at(b, "elsewhere").await;

    let before = world.now().await;
    let derived = answered(world.store.history(None)).await;
    let took = world.now().await.since(before) + TOLERANCE;
    world.claim(b).await;
    let written = world.history().await;

    let told: Vec<_> = derived.iter().map(|entry| (entry.worker.as_str(), entry.what)).collect();
    assert_eq!(
        told,
        [("a", HistoryEvent::Granted), ("a", HistoryEvent::Expired), ("b", HistoryEvent::Granted)]
    );
    assert!(derived[1].ago.abs_diff(before.since(ran_out_at)) <= took, "{derived:?}");
    let expected = [("a", HistoryEvent::Granted), ("a", HistoryEvent::Expired), ("b", HistoryEvent::Granted)];
    assert_eq!(written, expected.map(|(worker, what)| (worker.to_string(), what)));
}

/// A death that is proved late was a death all the same, and no later than the end of the lease.
pub async fn a_lease_that_is_closed_after_it_ran_out_ended_when_it_ran_out(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.own_for("a", SHORT).await;
    world.renew(a).await;
    let ran_out_at = world.answered_at() + SHORT;
    world.pass_until(ran_out_at + STEP).await;

    world.close(a, Closing::Proved).await;

    let before = world.now().await;
    let entries = world.entries().await;
    let took = world.now().await.since(before) + TOLERANCE;
    assert_eq!(
        entries.iter().map(|entry| entry.what).collect::<Vec<_>>(),
        [HistoryEvent::Granted, HistoryEvent::Died]
    );
    assert!(entries[1].ago.abs_diff(before.since(ran_out_at)) <= took, "{entries:?}");
}

/// A name is data: whatever it contains, it is one resource, and comes back as it was.
pub async fn hostile_names_are_names_like_others(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (longest, wide) = ("n".repeat(200), "é".repeat(100));
    let names: Vec<&str> = HOSTILE.into_iter().chain([&*longest, &*wide]).collect();
    let (a, b) = (world.open_for("a", HOUR).await, world.open_for("b", HOUR).await);

    for resource in &names {
        let grant = granted(world.claim_at(a, resource).await);
        assert_eq!(grant.term, Term(1), "{resource:?} was taken for another");
        waiting(world.claim_at(b, resource).await);
        assert_eq!(world.ask_at(resource, grant.token, Some("b")).await, tenure_core::StepDownReply::Done);
    }

    let all: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
    assert_eq!(world.held(a).await.into_iter().collect::<BTreeSet<_>>(), all);
    assert_eq!(world.all_names().await.into_iter().collect::<BTreeSet<_>>(), all);
    let (first, _) = world.notices(a).await;
    let notices = world.all_notices(a, first, all.len()).await;
    assert_eq!(notices.into_keys().collect::<BTreeSet<_>>(), all);
    for resource in &names {
        let view = answered(world.store.read(Some(&name(resource)))).await;
        assert!(view.len() == 1 && view[0].resource.as_str() == *resource, "{resource:?}: {view:?}");
        let entries = answered(world.store.history(Some(&name(resource)))).await;
        assert!(entries.len() == 1 && entries[0].resource.as_str() == *resource, "{resource:?}: {entries:?}");
        assert_eq!(world.leave(a, resource, Leaving::Released).await, Released::Free);
        assert_eq!(granted(world.claim_at(b, resource).await).term, Term(2), "{resource:?}");
    }
}

/// Neither case nor spaces nor the form of a letter are folded, and numbers are not compared as numbers.
pub async fn names_that_look_alike_are_different(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let a = world.open_for("a", HOUR).await;
    let alike =
        ["job", "Job", "JOB", "job ", " job", "é", "e\u{301}", "1", "01", "1.0", "ß", "ss", "i", "ı", "İ"];

    for resource in alike {
        assert_eq!(
            granted(world.claim_at(a, resource).await).term,
            Term(1),
            "{resource:?} was taken for another"
        );
    }
    world.leave(a, "job ", Leaving::Released).await;

    assert_eq!(world.held(a).await.len(), alike.len() - 1);
}

/// Metadata and labels come back byte by byte.
pub async fn metadata_and_labels_come_back_as_they_were(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let large = format!(r#"{{"x":"{}"}}"#, "y".repeat(4096 - 8));
    let long = "l".repeat(100);
    let samples = [
        ("{}", "host-1-a1b2"),
        (r#"{ "b": 1.0, "a": [null, true, "it's"], "big": 12345678901234567890 }"#, "it's \"a\" label; --"),
        (r#"{"emoji":"🦀","escaped":"\u00e9\n\\"}"#, "日本語 %s {x}"),
        (&*large, &*long),
    ];

    for (text, worker) in samples {
        let metadata = Metadata::new(text).expect("valid metadata");
        let (a, b) = (fresh(), fresh());
        for lease in [a, b] {
            assert_eq!(world.open_with(lease, worker, LONG, &metadata).await, Said::Opened);
            world.claim(lease).await;
        }

        let view = world.view().await;
        let shown = [
            (&view.owners[0].worker, &view.owners[0].metadata),
            (&view.waiters[0].worker, &view.waiters[0].metadata),
        ];
        assert_eq!(shown, [(&label(worker), &metadata); 2]);
        assert_eq!(world.history().await.last(), Some(&(worker.to_string(), HistoryEvent::Granted)));
        world.close(b, Closing::Left).await;
        world.release(a).await;
    }
}

/// Two workers with one label are two workers: the lease is the identity.
pub async fn two_workers_with_one_label_are_harmless(fixture: impl Fixture) {
    let mut world = World::of(fixture);
    let (a, b) = (world.open("twin").await, world.open_for("twin", HOUR).await);
    granted(world.claim(a).await);
    waiting(world.claim(b).await);
    assert_eq!(world.held(b).await, Vec::<String>::new());

    world.close(a, Closing::Left).await;

    assert_eq!(world.renew(b).await, kept());
    assert_eq!(granted(world.claim(b).await).term, Term(2));
}
