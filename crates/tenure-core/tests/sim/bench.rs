//! How quick the rules are: a mix of what workers ask for, on one core.

use std::fmt;
use std::time::{Duration, Instant};

use tenure_core::rules::{Act, Capabilities, Client, Env, Step};
use tenure_core::*;

use crate::store::Store;

/// How many decisions in how long.
pub(crate) struct Speed {
    decisions: u64,
    took: Duration,
}

impl Speed {
    pub(crate) fn per_second(&self) -> f64 {
        self.decisions as f64 / self.took.as_secs_f64()
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "decisions of the rules: {:.0} a second on one core", self.per_second())
    }
}

/// 100 workers renew, and pass 100 resources around: release, claim, claim in vain. Decisions of the rules, each with
/// what the store does in between.
pub(crate) fn rules(at_least: Duration) -> Speed {
    const WORKERS: u64 = 100;
    let capabilities =
        Capabilities { clock: true, together: true, most_changes: 250, most_signal_bytes: 8_000 };
    let mut desk = Desk {
        store: Store::new(capabilities, 1_000_000, Planted::default()),
        clients: vec![Client::new(capabilities); WORKERS as usize],
        at: 1,
        decisions: 0,
    };
    let (ttl, name) =
        (Duration::from_secs(15), |n: u64| ResourceName::new(&format!("r.{n}")).expect("a name"));
    for worker in 0..WORKERS {
        let (label, metadata) = (Label::new("bench").expect("a label"), Metadata::default());
        desk.ask(worker, 0, Call::Open { ttl, label, metadata });
    }
    let (began, on_cpu, mut seq) = (Instant::now(), on_cpu(), 0);
    desk.decisions = 0;
    while began.elapsed() < at_least {
        for worker in 0..WORKERS {
            seq += 1;
            let want = Want { resource: name(worker), tickets: Tickets::ONE, priority: 0 };
            let next = (worker + 1) % WORKERS;
            desk.ask(worker, seq * 4, Call::Renew);
            desk.ask(worker, seq * 4 + 1, Call::Claim(vec![want.clone()]));
            desk.ask(next, seq * 4 + 2, Call::Claim(vec![want]));
            for worker in [worker, next] {
                let leave = Leave { resource: name(seq % WORKERS), how: Leaving::Released };
                desk.ask(worker, seq * 4 + 3, Call::Release(vec![leave]));
            }
        }
    }
    // Others may use the machine at the same time: what counts is the time that this thread had.
    let took = match (on_cpu, self::on_cpu()) {
        (Some(before), Some(after)) => after - before,
        _ => began.elapsed(),
    };
    Speed { decisions: desk.decisions, took }
}

/// How long this thread has been on a processor, where the system tells.
fn on_cpu() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

struct Desk {
    store: Store,
    clients: Vec<Client>,
    at: u64,
    decisions: u64,
}

impl Desk {
    fn ask(&mut self, worker: u64, seq: u64, call: Call) {
        let moment = Moment::new(Duration::from_micros(self.at), Duration::from_micros(self.at));
        let (lease, limit) = (LeaseId(u128::from(worker) << 64 | 1), Duration::from_secs(15));
        let judged_by = None;
        let request = Request { lease, seq: Seq(seq), asked_at: moment, limit, judged_by, call };
        let client = &mut self.clients[worker as usize];
        let env = |at: u64| Env {
            at: Moment::new(Duration::from_micros(at), Duration::from_micros(at)),
            wall: at,
            jitter: 0,
            chance: (u128::from(at.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 64) | u128::from(at),
        };
        let mut operation = client.begin(&env(self.at), Act::Call(request, None));
        loop {
            self.at += 1;
            self.decisions += 1;
            let now = env(self.at);
            match client.step(&now, &mut operation) {
                Step::Done(_) => return,
                Step::Wait(_) | Step::List => {}
                Step::Read(keys) => {
                    let (shown, found) = self.store.read(self.at, &keys);
                    client.read(&now, &mut operation, shown, found);
                }
                Step::LostNothing(_) => client.lost_nothing(&mut operation, true),
                Step::Commit(life, sendings) => {
                    let fates = sendings.iter().map(|sending| {
                        self.store.commit(self.at, life, sending, 0..sending.change.put.len()).0
                    });
                    let fates = fates.collect();
                    client.committed(&now, &mut operation, self.store.shown(self.at), fates);
                }
            }
        }
    }
}
