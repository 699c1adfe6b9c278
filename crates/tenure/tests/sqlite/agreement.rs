//! One random sequence of calls against the store and against the ledger, in real time: equal answers.

use super::*;
use std::collections::BTreeMap;
use tenure_core::{Here, Ledger, Token};

/// Numbers that repeat with their seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Tokens come from the wall clock, which the two do not share: they are compared by their order.
#[derive(Default)]
struct Tokens(BTreeMap<ResourceName, BTreeMap<u64, Token>>);

impl Tokens {
    /// The store's token for the term has to be above those of the terms before.
    fn check(&mut self, resource: &ResourceName, grant: Grant) {
        let known = self.0.entry(resource.clone()).or_default();
        let before = known.range(..grant.term.0).next_back().map(|(_, token)| *token);
        assert!(before.is_none_or(|before| before < grant.token), "{resource}: {grant:?} after {before:?}");
        let again = *known.entry(grant.term.0).or_insert(grant.token);
        assert_eq!(again, grant.token);
    }
}

/// The answer with tokens left out, once they are checked.
fn without_tokens(said: Said, names: &[ResourceName], tokens: Option<&mut Tokens>) -> Said {
    let mut tokens = tokens;
    let mut plain = |claimed: Claimed, name: &ResourceName| match claimed {
        Claimed::Granted(grant) => {
            if let Some(tokens) = tokens.as_deref_mut() {
                tokens.check(name, grant);
            }
            Claimed::Granted(Grant { token: Token(0), ..grant })
        }
        other => other,
    };
    match said {
        Said::Claimed(claimed) => {
            Said::Claimed(claimed.into_iter().zip(names).map(|(c, n)| plain(c, n)).collect())
        }
        Said::Released(released) => {
            let plain = |(released, name)| match released {
                Released::Again(claimed) => Released::Again(plain(claimed, name)),
                other => other,
            };
            Said::Released(released.into_iter().zip(names).map(plain).collect())
        }
        Said::Kept { mut notices, more } => {
            notices.iter_mut().for_each(|notice| notice.token = Token(0));
            Said::Kept { notices, more }
        }
        Said::Held(mut held) => {
            held.iter_mut().for_each(|holding| holding.token = Token(0));
            Said::Held(held)
        }
        other => other,
    }
}

fn call(dice: &mut Dice) -> (Call, Vec<ResourceName>) {
    let names: Vec<ResourceName> = match dice.below(3) {
        0 => vec![name("a"), name("b")],
        1 => vec![name("a")],
        _ => vec![name("b")],
    };
    let tickets = Tickets::new(1 + u32::from(dice.below(4) == 0)).expect("within the limits");
    let call = match dice.below(12) {
        0..=1 => {
            let label = Label::new("worker").expect("a label");
            Call::Open { ttl: SHORT, label, metadata: Metadata::default() }
        }
        2..=5 => Call::Renew,
        6..=8 => {
            let want = |resource| Want { resource, tickets, priority: 0 };
            Call::Claim(names.iter().cloned().map(want).collect())
        }
        9..=10 => {
            let how = if dice.below(2) == 0 { Leaving::Released } else { Leaving::SteppedDown };
            Call::Release(names.iter().cloned().map(|resource| Leave { resource, how }).collect())
        }
        _ if dice.below(3) == 0 => Call::Close(Closing::Left),
        _ => Call::Held,
    };
    (call, names)
}

#[tokio::test]
async fn a_random_sequence_is_answered_as_the_ledger_answers_it() {
    let seed: u64 = std::env::var("TENURE_SEED").map_or(7, |seed| seed.parse().expect("a number"));
    println!("repeat with TENURE_SEED={seed}");
    let folder = Folder::new();
    let stores = [open(&folder.file()), open(&folder.file())];
    let (mut dice, mut tokens) = (Dice(seed.max(1)), Tokens::default());
    let mut ledger = None;
    let mut askers: Vec<Asker<'_>> = (0..4).map(|i| Asker::new(&stores[i % 2])).collect();

    for turn in 0..600_u64 {
        let index = dice.below(4) as usize;
        if dice.below(15) == 0 {
            askers[index] = Asker::new(&stores[index % 2]);
        }
        if dice.below(12) == 0 {
            // Time that goes by, not a wait for anything: leases run out at other moments in every run.
            tokio::time::sleep(Duration::from_millis(dice.below(120))).await;
        }
        let (call, names) = call(&mut dice);
        let asker = &mut askers[index];
        asker.seq += 1;
        let late = if dice.below(8) == 0 { dice.below(3) } else { 0 };
        let request = Request {
            lease: asker.lease,
            seq: Seq(asker.seq.saturating_sub(late)),
            asked_at: Moment::new(Duration::ZERO, Duration::ZERO),
            limit: LIMIT,
            judged_by: asker.judged_by.filter(|_| dice.below(3) != 0),
            longest: Duration::ZERO,
            call,
        };
        let answer = asker.store.call(&request).await.expect("an answer");
        asker.judged_by = Some(answer.stamp.now);

        let ledger = ledger.get_or_insert_with(|| Ledger::new(answer.stamp.incarnation));
        let here = Here::new(answer.stamp.now, turn + 1, answer.stamp.incarnation).expect("before 2200");
        let expected = ledger.apply(here, &request);
        assert_eq!(answer.stamp, expected.stamp, "turn {turn}");
        let found = without_tokens(answer.said, &names, Some(&mut tokens));
        assert_eq!(found, without_tokens(expected.said, &names, None), "turn {turn}: {request:?}");
    }
    assert!(tokens.0.values().map(BTreeMap::len).sum::<usize>() > 20, "the sequence does not test much");
}
