//! A deterministic simulation: S1 to S7 and L1 to L4 under everything that can go wrong. // req: H10
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

mod actor;
mod check;
mod plan;
mod rng;
mod run;
mod world;

use tenure_core::{Bug, Planted};

#[test]
fn quick() {
    let seeds: u64 = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(100);
    let start: u64 = std::env::var("START").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let t = std::time::Instant::now();
    let (mut g, mut k, mut e, mut bad) = (0, 0, 0, 0);
    for seed in start..start + seeds {
        let o = run::simulate(seed, Planted::default());
        g += o.grants;
        k += o.takeovers;
        e += o.events;
        if let Some(v) = &o.violation {
            bad += 1;
            if bad < 15 {
                println!("seed {seed}: {v}");
            }
        }
    }
    println!("{g} grants {k} takeovers {e} events {bad} bad in {:?}", t.elapsed());
}

#[test]
fn mutants() {
    let seeds: u64 = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2000);
    use Bug::*;
    for bug in [
        TrustFromTheReply,
        NoDriftAllowance,
        ReleaseBeforeStop,
        ReadoptAfterRelease,
        TokenResetOnRelease,
        RenewalRecreatesLease,
        ReleaseWithoutSeq,
        QuarantineOff,
        ConfirmationOff,
        JudgedByOff,
        JudgedByMissingInRenew,
        JudgedByMissingInRelease,
        RepeatedRenewalKept,
        TicketsNotCounted,
        ClaimWhileWorkRuns,
        ClaimBeforeReleaseAnswered,
        SlowAnswersForgotten,
        BelieveTooLong,
    ] {
        let mut found = None;
        for seed in 0..seeds {
            let o = run::simulate(seed, Planted::with(bug));
            if let Some(v) = o.violation {
                found = Some((seed, v));
                break;
            }
        }
        match found {
            Some((s, v)) => println!("{bug:?}: {s} {v}"),
            None => println!("{bug:?}: NOT FOUND"),
        }
    }
}
