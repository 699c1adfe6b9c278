//! Many waiters, many tickets, many rows: the work of one script stays small, or grows as it has to and no faster.

use super::*;
use tenure::store::{Closing, MemoryStore, Released};
use tenure_core::Asked;

/// Writes so many waiters of a resource into the keys, as their claims would; their leases are good for a minute, or have
/// been over for one.
fn wait_in_line(server: &Redis, resource: &str, count: u32, lives: bool) {
    let script = "
        local now = redis.call('TIME')
        local expires = (now[1] + (ARGV[3] == '1' and 60 or -60)) .. '000000'
        for n = 1, ARGV[2] do
          local lease = string.sub(redis.sha1hex(ARGV[1] .. ' ' .. n), 1, 32)
          local place = '90071992547409912147483647' .. string.format('%016.0f', n)
          redis.call('ZADD', '{tenure}:leases', expires, lease)
          redis.call('HSET', '{tenure}:state', 'lease:' .. lease, '60000000000 1 {tenure}:hint:nobody crowd')
          redis.call('HSET', '{tenure}:metadata', lease, '')
          redis.call('HSET', '{tenure}:state', 'place:' .. lease .. '\\0' .. ARGV[1], place)
          redis.call('ZADD', '{tenure}:queue', 0, ARGV[1] .. '\\0' .. place .. ' ' .. lease)
        end
        local row = redis.call('HGET', '{tenure}:state', 'resource:' .. ARGV[1])
        row = string.gsub(row, '^(%d+ %d+ %x+ %d+ )%d+', '%1' .. string.format('%.0f', ARGV[2]))
        redis.call('HSET', '{tenure}:state', 'resource:' .. ARGV[1], row)
        return 'OK'";
    let (count, lives) = (count.to_string(), if lives { "1" } else { "0" });
    assert_eq!(server.command(&["EVAL", script, "0", resource, &count, lives]).text(), "OK");
}

/// How long the server is on a core for one of these calls, in the median: what else the machine does is not counted.
async fn time_on_core(server: &Redis, mut call: impl AsyncFnMut()) -> Duration {
    let spent = || {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", server.process().pid()));
        let nanos = text.expect("it runs").split(' ').next().and_then(|number| number.parse().ok());
        Duration::from_nanos(nanos.expect("a number"))
    };
    let mut times = vec![];
    for _ in 0..21 {
        let before = spent();
        call().await;
        times.push(spent() - before);
    }
    times.sort();
    times[times.len() / 2]
}

/// How often the server has run this command.
fn counted(server: &Redis, command: &str) -> u64 {
    let (text, name) =
        (server.command(&["INFO", "commandstats"]).text(), format!("cmdstat_{command}:calls="));
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or("0,").to_owned();
    line.split(',').next().expect("a number").parse().expect("a number")
}

/// A claim reads as much of the queue as it needs.
#[tokio::test]
async fn a_claim_behind_ten_thousand_costs_little_more_than_one_behind_a_thousand() {
    let mut times = vec![];
    for count in [1_000, 10_000] {
        let server = fresh(Options::new());
        let store = open(&server.url()).await.expect("a store");
        let [owner, last] = [opened(&store).await, opened(&store).await];
        claimed(&store, owner, "job").await;
        wait_in_line(&server, "job", count, true);
        let Claimed::Waiting(look) = claimed(&store, last, "job").await else { panic!("let in") };
        assert_eq!(look.ahead, count);

        let look = async || {
            claimed(&store, last, "job").await;
        };
        times.push(time_on_core(&server, look).await);
    }
    println!("behind 1 000: {:?}, behind 10 000: {:?} for each claim", times[0], times[1]);
    assert!(times[1] < times[0] * 4, "{times:?}");
}

/// A release goes past dead waiters in large steps, each from where the last one ended, and hints the first that lives.
#[tokio::test]
async fn a_release_goes_past_many_dead_waiters_in_large_steps() {
    for count in [1_000, 8_000] {
        let server = fresh(Options::new());
        let store = open(&server.url()).await.expect("a store");
        let [owner, last] = [opened(&store).await, opened(&store).await];
        let mut hints = store.hints(last).await.expect("a subscription");
        claimed(&store, owner, "job").await;
        wait_in_line(&server, "job", count, false);
        assert!(matches!(claimed(&store, last, "job").await, Claimed::Waiting(_)));

        let before = counted(&server, "zrangebylex");
        said(&store, owner, releasing(&["job"], Leaving::Released)).await;
        let looks = counted(&server, "zrangebylex") - before;

        let hint = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
        assert_eq!(hint.resource, name("job"));
        assert!(looks <= u64::from(count / 500 + 6), "past {count} dead in {looks} looks");
        // Of more than a thousand the rest count as living for a while.
        let claimed = claimed(&store, last, "job").await;
        assert!(
            count > 1_000 || matches!(claimed, Claimed::Granted(_)),
            "nobody lives before it: {claimed:?}"
        );
    }
}

/// Behind those that a claim looks at the dead count as living: never for more than the ten steps that nobody waits
/// longer than.
#[tokio::test]
async fn behind_many_dead_waiters_nobody_waits_for_ever() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, last] = [opened(&store).await, opened(&store).await];
    claimed(&store, owner, "job").await;
    wait_in_line(&server, "job", 3_000, false);
    let Claimed::Waiting(look) = claimed(&store, last, "job").await else { panic!("let in") };
    assert!((1_000..3_000).contains(&look.ahead), "{look:?}");

    said(&store, owner, releasing(&["job"], Leaving::Released)).await;
    let begun = std::time::Instant::now();
    while !matches!(claimed(&store, last, "job").await, Claimed::Granted(_)) {
        assert!(begun.elapsed() < PATIENCE, "it waits for the dead");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Where there are more tickets than are read at once the rules are the same.
#[tokio::test]
async fn forty_tickets_are_given_freed_lowered_and_raised_like_one() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let claim =
        async |lease: LeaseId, tickets: u32| match said(&store, lease, claiming_all(&["job"], tickets)).await
        {
            Said::Claimed(claimed) => claimed[0],
            other => panic!("{other:?}"),
        };
    let mut owners = vec![];
    for ticket in 0..40 {
        let lease = opened(&store).await;
        let Claimed::Granted(grant) = claim(lease, 40).await else { panic!("not granted") };
        assert_eq!(grant.ticket.0, ticket);
        owners.push((lease, grant));
    }
    let waiter = opened(&store).await;
    let mut hints = store.hints(waiter).await.expect("a subscription");
    assert!(matches!(claim(waiter, 40).await, Claimed::Waiting(look) if look.ahead == 0));

    assert!(matches!(
        said(&store, owners[7].0, releasing(&["job"], Leaving::Released)).await,
        Said::Released(_)
    ));
    let hint = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
    assert_eq!(hint.after, Duration::ZERO);
    assert!(matches!(claim(waiter, 40).await, Claimed::Granted(grant) if grant.ticket.0 == 7));

    // Lowered by one who came later: the highest are asked, and their seats go with them.
    let later = opened(&store).await;
    assert!(matches!(claim(later, 20).await, Claimed::Waiting(_)));
    for (ticket, (lease, _)) in owners.iter().enumerate().filter(|(ticket, _)| *ticket != 7) {
        let Said::Kept { notices, .. } = said(&store, *lease, Call::Renew).await else { panic!("gone") };
        assert_eq!(notices.len(), usize::from(ticket >= 20), "ticket {ticket}");
    }
    for (lease, _) in &owners[20..] {
        said(&store, *lease, releasing(&["job"], Leaving::Released)).await;
    }
    assert_eq!(fields(&server, "seat:").len(), 20);
    assert!(matches!(claim(later, 20).await, Claimed::Waiting(_)), "twenty own it still");
    said(&store, owners[0].0, Call::Close(Closing::Left)).await;
    assert!(matches!(claim(later, 20).await, Claimed::Granted(grant) if grant.ticket.0 == 0));

    let latest = opened(&store).await;
    assert!(matches!(claim(latest, 30).await, Claimed::Granted(grant) if grant.ticket.0 == 20));
    assert_eq!(fields(&server, "seat:").len(), 30);
    let view = store.read(Some(&name("job"))).await.expect("a view").swap_remove(0);
    assert_eq!((view.tickets, view.owners.len()), (30, 21));
}

/// An answer without what differs between two stores: tokens, and how long until the next look.
fn bare(said: &Said) -> String {
    let claimed = |claimed: &Claimed| match claimed {
        Claimed::Granted(grant) => format!("granted {:?} {:?}", grant.ticket, grant.term),
        Claimed::Waiting(look) => format!("waiting {} {:?}", look.ahead, look.why),
        Claimed::Stale => "stale".to_owned(),
    };
    match said {
        Said::Claimed(all) => all.iter().map(claimed).collect(),
        Said::Released(all) => {
            let released = |released: &Released| match released {
                Released::Again(again) => claimed(again),
                other => format!("{other:?}"),
            };
            all.iter().map(released).collect()
        }
        other => format!("{other:?}"),
    }
}

/// A queue that is longer than what a claim reads at first, as the ledger has it: who is ahead, who is next, where one
/// who steps down goes.
#[tokio::test]
async fn a_long_queue_is_as_the_ledger_has_it() {
    const WAITERS: u32 = 120;
    let server = fresh(Options::new());
    let (store, ledger) = (open(&server.url()).await.expect("a store"), MemoryStore::default());
    let both = async |lease: LeaseId, call: Call| {
        let sent = request(lease, call);
        let (ours, theirs) =
            (store.call(&sent).await.expect("an answer"), ledger.call(&sent).await.expect("an answer"));
        assert_eq!(bare(&ours.said), bare(&theirs.said), "{sent:?}");
        ours.said
    };
    let order = async || {
        let mut queues = vec![];
        for store in [&store as &dyn Store, &ledger] {
            let view = store.read(Some(&name("job"))).await.expect("a view").swap_remove(0);
            let owners = view.owners.iter().map(|owner| owner.worker.to_string());
            queues.push(
                owners.chain(view.waiters.iter().map(|waiter| waiter.worker.to_string())).collect::<Vec<_>>(),
            );
        }
        assert_eq!(queues[0], queues[1]);
    };
    let leases: Vec<LeaseId> = (0..=WAITERS).map(|_| LeaseId(u128::from_le_bytes(random()))).collect();
    let priority = |index: usize| [0, 3, -2, 0, 1][index % 5];
    for (index, lease) in leases.iter().enumerate() {
        let label = Label::new(&format!("{index}")).expect("a label");
        let ttl = Duration::from_secs(600);
        both(*lease, Call::Open { ttl, label, metadata: Metadata::default() }).await;
        let want = Want { resource: name("job"), tickets: Tickets::ONE, priority: priority(index) };
        both(*lease, Call::Claim(vec![want])).await;
    }
    order().await;

    // The last of all, and many others, are gone; nobody has come across that.
    let is_dead = |index: usize| index % 3 == 1 || (90..=120).contains(&index) && priority(index) == -2;
    let (dead, living): (Vec<usize>, Vec<usize>) = (1..leases.len()).partition(|index| is_dead(*index));
    for index in dead {
        both(leases[index], Call::Close(Closing::Left)).await;
    }
    for index in living.iter().rev().step_by(7) {
        both(leases[*index], claiming("job")).await;
    }
    order().await;

    // One who steps down goes to the tail, with the lowest priority of those who live.
    both(leases[0], releasing(&["job"], Leaving::SteppedDown)).await;
    order().await;
    // So does one who only waits.
    both(leases[living[3]], releasing(&["job"], Leaving::SteppedDown)).await;
    order().await;
    let mut granted = 0;
    for index in &living {
        if bare(&both(leases[*index], claiming("job")).await).starts_with("granted") {
            granted = *index;
        }
    }
    // And the one whom an operator names goes to the head, whatever its priority.
    let last = living.iter().rev().find(|index| priority(**index) == -2).expect("somebody");
    let successor = Label::new(&format!("{last}")).expect("a label");
    for store in [&store as &dyn Store, &ledger] {
        let view = store.read(Some(&name("job"))).await.expect("a view").swap_remove(0);
        let asked = store.ask(&name("job"), view.owners[0].grant.token, Some(&successor)).await;
        assert_eq!(asked.expect("asked"), Asked::Done);
    }
    order().await;
    both(leases[granted], releasing(&["job"], Leaving::SteppedDown)).await;
    order().await;
    both(leases[*last], claiming("job")).await;
    order().await;
}

/// What has more rows than one answer holds comes in several, and complete.
#[tokio::test]
async fn what_is_read_comes_in_pieces_and_is_complete() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    for resource in ["a", "z"] {
        claimed(&store, lease, resource).await;
    }
    said(&store, lease, claiming_all(&["job"], 3_000)).await;
    wait_in_line(&server, "job", 5_000, true);
    let dead = opened(&store).await;
    said(&store, dead, claiming_all(&["many"], 9_000)).await;
    said(&store, dead, Call::Close(Closing::Left)).await;

    let before = counted(&server, "evalsha");
    let views = store.read(None).await.expect("views");
    let pieces = counted(&server, "evalsha") - before;

    let names: Vec<&str> = views.iter().map(|view| view.resource.as_str()).collect();
    assert_eq!(names, ["a", "job", "many", "z"]);
    assert_eq!((views[1].owners.len(), views[1].waiters.len()), (1, 5_000));
    assert!(pieces >= 3, "5 000 waiters in {pieces} answers");
    let one = store.read(Some(&name("job"))).await.expect("a view");
    assert_eq!((one.len(), one[0].owners.len(), one[0].waiters.len()), (1, 1, 5_000));

    let before = counted(&server, "evalsha");
    let entries = store.history(None).await.expect("entries");
    let pieces = counted(&server, "evalsha") - before;
    assert_eq!(entries.len(), 4 + 1, "{entries:?}");
    assert!(pieces >= 4, "12 002 seats in {pieces} answers");
}

/// Of a lease that is closed nothing stays that it asked for, however much that was.
#[tokio::test]
async fn a_lease_that_asked_for_thousands_leaves_none_of_its_requests() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [lease, other] = [opened(&store).await, opened(&store).await];
    claimed(&store, other, "job").await;
    let names: Vec<String> = (0..4_100).map(|number| format!("{number}")).collect();
    for batch in names.chunks(250) {
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        said(&store, lease, claiming_all(&batch, 1)).await;
    }
    assert_eq!(fields(&server, "newest:").len(), 4_101);

    said(&store, lease, Call::Close(Closing::Left)).await;

    assert_eq!(fields(&server, "newest:"), [format!("newest:{}\0job", hex(other))]);
    assert_eq!(server.command(&["ZCARD", "{tenure}:newest"]).text(), "1");
}

/// A notice is for one ownership: when that is over, and nothing else stands, the next hand-over is a usual one.
#[tokio::test]
async fn a_notice_that_was_heeded_leaves_no_mark() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    for resource in ["a", "b"] {
        let Claimed::Granted(grant) = claimed(&store, lease, resource).await else { panic!("not granted") };
        assert_eq!(store.ask(&name(resource), grant.token, None).await.expect("asked"), Asked::Done);
    }

    said(&store, lease, releasing(&["a"], Leaving::Released)).await;
    assert_eq!(fields(&server, "noticed:").len(), 1, "something stands for b");
    said(&store, lease, releasing(&["b"], Leaving::Released)).await;
    assert_eq!(fields(&server, "noticed:").len(), 0);
}

/// No name is taken for a sign.
#[tokio::test]
async fn a_resource_that_is_named_like_a_sign_does_not_end_the_history() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    // In the order of the names the dot is the last of a piece, of 1000 resources with a seat each, and the job behind it.
    let mut names: Vec<String> = (0..999).map(|number| format!("!{number:03}")).collect();
    names.push(".".to_owned());
    for batch in names.chunks(250) {
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        said(&store, lease, claiming_all(&batch, 1)).await;
    }
    claimed(&store, lease, "job").await;
    said(&store, lease, Call::Close(Closing::Left)).await;

    let entries = store.history(None).await.expect("entries");

    assert_eq!(entries.iter().filter(|entry| entry.resource == name("job")).count(), 2);
    assert_eq!(entries.len(), 2 * 1_001);
}
