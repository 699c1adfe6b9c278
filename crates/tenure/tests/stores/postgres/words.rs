//! Short words for what a worker asks of the store itself.

use std::sync::Arc;
use std::time::Duration;

use tenure::Error;
use tenure::store::{Answer, Call, Claimed, LeaseId, Leave, Leaving, Request, Said, Seq, Store, Want};
use tenure::types::{Grant, Label, Metadata, ResourceName};
use tenure_core::{Moment, Tickets};

/// How long a condition may take to come true; nothing here is expected to take nearly as long.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A worker, as the store sees it.
pub(crate) struct Asker {
    store: Arc<dyn Store>,
    pub(crate) lease: LeaseId,
    seq: u64,
    pub(crate) limit: Duration,
}

impl Asker {
    /// Without a lease.
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("random numbers");
        let lease = LeaseId(u128::from_le_bytes(bytes));
        Self { store: store.clone(), lease, seq: 0, limit: SOON }
    }

    /// With a lease of this length.
    pub(crate) async fn open(store: &Arc<dyn Store>, label: &str, ttl: Duration) -> Self {
        let mut asker = Self::new(store);
        let label = Label::new(label).expect("a label");
        let opened = asker.ask(Call::Open { ttl, label, metadata: Metadata::default() }).await;
        assert_eq!(opened.expect("an answer").said, Said::Opened);
        asker
    }

    pub(crate) async fn ask(&mut self, call: Call) -> Result<Answer, Error> {
        self.seq += 1;
        let request = Request {
            lease: self.lease,
            seq: Seq(self.seq),
            asked_at: Moment::new(Duration::ZERO, Duration::ZERO),
            limit: self.limit,
            judged_by: None,
            call,
        };
        let answer = tokio::time::timeout(self.limit, self.store.call(&request)).await;
        answer.unwrap_or_else(|_| Err(Error::unavailable("the test waited long enough")))
    }

    pub(crate) async fn renew(&mut self) -> Said {
        self.ask(Call::Renew).await.expect("an answer").said
    }

    pub(crate) async fn claim(&mut self, names: &[&str]) -> Vec<Claimed> {
        match self
            .ask(Call::Claim(names.iter().map(|name| want(name)).collect()))
            .await
            .expect("an answer")
            .said
        {
            Said::Claimed(claimed) => claimed,
            said => panic!("a claim was answered {said:?}"),
        }
    }

    pub(crate) async fn release(&mut self, names: &[&str]) {
        let leave = |name: &&str| Leave { resource: resource(name), how: Leaving::Released };
        let said = self.ask(Call::Release(names.iter().map(leave).collect())).await.expect("an answer").said;
        assert!(matches!(said, Said::Released(_)), "{said:?}");
    }
}

pub(crate) fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a name")
}

pub(crate) fn want(name: &str) -> Want {
    Want { resource: resource(name), tickets: Tickets::ONE, priority: 0 }
}

#[track_caller]
pub(crate) fn granted(claimed: &[Claimed]) -> Grant {
    match claimed {
        [Claimed::Granted(grant)] => *grant,
        other => panic!("a claim that should be granted was answered {other:?}"),
    }
}
