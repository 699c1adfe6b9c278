//! How quick the ledger is: a mix of what a store has to do, on one core.

use std::fmt;
use std::time::{Duration, Instant};

use tenure_core::*;

/// How many operations in how long.
pub(crate) struct Speed {
    operations: u64,
    took: Duration,
}

impl Speed {
    pub(crate) fn per_second(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ledger: {:.0} operations a second on one core", self.per_second())
    }
}

/// 1000 workers renew, and pass 1000 resources around among five each: release, claim, claim in vain.
pub(crate) fn ledger(at_least: Duration) -> Speed {
    const WORKERS: u64 = 1000;
    let mut ledger = Ledger::new(Incarnation(1));
    let names: Vec<ResourceName> =
        (0..WORKERS).map(|n| ResourceName::new(&format!("resource.{n}")).expect("a name")).collect();
    let ttl = Duration::from_secs(15);
    let moment = Moment::new(Duration::ZERO, Duration::ZERO);
    let request = |worker: u64, seq: u64, call: Call| Request {
        lease: LeaseId(u128::from(worker) << 64 | 1),
        seq: Seq(seq),
        asked_at: moment,
        limit: ttl,
        judged_by: None,
        longest: ttl,
        call,
    };
    let mut clock = 1_000_000;
    let mut apply = |request: &Request| {
        clock += 1;
        let here = Here::new(StoreTime::from_micros(clock), clock, Incarnation(1)).expect("a sane clock");
        let Answer { stamp, .. } = ledger.apply(here, request);
        assert!(stamp.longest <= ttl && ledger.take_hints().len() <= 2);
    };
    for worker in 0..WORKERS {
        let (label, metadata) = (Label::new("bench").expect("a label"), Metadata::default());
        apply(&request(worker, 0, Call::Open { ttl, label, metadata }));
    }
    let (began, mut operations, mut seq) = (Instant::now(), 0, 0);
    while began.elapsed() < at_least {
        for round in 0..WORKERS {
            seq += 1;
            let resource = names[(round * 7919 % WORKERS) as usize].clone();
            let worker = (round * 31 + seq) % WORKERS;
            let want = Want { resource: resource.clone(), tickets: Tickets::ONE, priority: 0 };
            apply(&request(worker, seq * 4, Call::Renew));
            apply(&request(worker, seq * 4 + 1, Call::Claim(vec![want.clone()])));
            apply(&request((worker + 1) % WORKERS, seq * 4 + 2, Call::Claim(vec![want])));
            for worker in [worker, (worker + 1) % WORKERS] {
                let leave = Leave { resource: resource.clone(), how: Leaving::Released };
                apply(&request(worker, seq * 4 + 3, Call::Release(vec![leave])));
            }
            operations += 5;
        }
    }
    Speed { operations, took: began.elapsed() }
}
