//! A store as tools see it: reading and operators' wishes. Takes no lease, but to measure what a renewal costs.

mod measure;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Call, Closing, JobView, Label, LeaseId, Namespace, Request, ResourceName, Seq, Token};
pub use tenure_core::{HistoryEvent, OwnerView, ResourceView, StepDownReply, WaiterView};
use tokio::sync::oneshot;

pub use self::measure::{Measured, RoundTrip};
use crate::Error;
use crate::store::{self, Condition, Entry, OpenStore, Pending, Store, Warning};

/// How long a tool waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A namespace of a store, for tools: who owns what, what happened, and an operator's wishes.
#[derive(Clone, Debug)]
pub struct Admin {
    opened: OpenStore,
}

impl Admin {
    /// The default namespace of the store at `url`.
    ///
    /// # Errors
    /// When the URL is not understood, or the store cannot be opened.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Ok(Self { opened: store::open(url, &Namespace::default()).await? })
    }

    /// Another namespace of the store at `url`.
    ///
    /// # Errors
    /// When the name breaks its limit, the URL is not understood, or the store cannot be opened.
    pub async fn open_named(url: &str, namespace: &str) -> Result<Self, Error> {
        Ok(Self { opened: store::open(url, &Namespace::new(namespace)?).await? })
    }

    /// The same, unless there is no store at `url` yet: nothing is made in order to look at it. A store in memory is
    /// there as long as somebody in this process uses it.
    ///
    /// # Errors
    /// As [`open_named`](Self::open_named).
    pub async fn find(url: &str, namespace: &str) -> Result<Option<Self>, Error> {
        let found = store::find(url, &Namespace::new(namespace)?).await?;
        Ok(found.map(|opened| Self { opened }))
    }

    /// A namespace of a store that is open already.
    #[must_use]
    pub fn on(opened: OpenStore) -> Self {
        Self { opened }
    }

    /// Owners and waiters of one resource, if it was ever claimed.
    ///
    /// # Errors
    /// When the store does not answer. Never an old answer.
    pub async fn read(&self, resource: &str) -> Result<Option<ResourceView>, Error> {
        let name = ResourceName::new(resource)?;
        let views =
            self.ask_store(move |store| Box::pin(async move { store.read(Some(&name)).await })).await?;
        Ok(views.into_iter().next())
    }

    /// Owners and waiters of every resource that was ever claimed, by name.
    ///
    /// # Errors
    /// When the store does not answer. Never an old answer.
    pub async fn read_all(&self) -> Result<Vec<ResourceView>, Error> {
        self.ask_store(|store| Box::pin(async move { store.read(None).await })).await
    }

    /// Whether the store grants nothing for now, and which resources have records that cannot be read:
    /// [`read_all`](Self::read_all) leaves them out.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn condition(&self) -> Result<Condition, Error> {
        self.ask_store(|store| Box::pin(async move { store.condition().await })).await
    }

    /// What happened to one resource, oldest first.
    ///
    /// # Errors
    /// When the store does not answer.
    // req: H19
    pub async fn history(&self, resource: &str) -> Result<Vec<Entry>, Error> {
        let name = ResourceName::new(resource)?;
        self.ask_store(move |store| Box::pin(async move { store.history(Some(&name)).await })).await
    }

    /// What happened to all resources, oldest first.
    ///
    /// # Errors
    /// When the store does not answer.
    // req: H19
    pub async fn history_of_all(&self) -> Result<Vec<Entry>, Error> {
        self.ask_store(|store| Box::pin(async move { store.history(None).await })).await
    }

    /// Every job that was ever taken up, by name, with the latest record of each.
    ///
    /// # Errors
    /// When the store does not answer.
    // req: E11
    pub async fn jobs(&self) -> Result<Vec<JobView>, Error> {
        self.ask_store(|store| Box::pin(async move { store.jobs(None).await })).await
    }

    /// One job, by the name of its resource, with all its records that are kept; nothing if nobody ever took it up.
    ///
    /// # Errors
    /// When the store does not answer.
    // req: E11
    pub async fn job(&self, job: &str) -> Result<Option<JobView>, Error> {
        let name = ResourceName::new(job)?;
        let views =
            self.ask_store(move |store| Box::pin(async move { store.jobs(Some(&name)).await })).await?;
        Ok(views.into_iter().next())
    }

    /// Asks the owner under `token` to hand over gently, to the waiter labelled `successor` if one is named.
    ///
    /// # Errors
    /// When the store does not answer.
    // req: H18
    pub async fn ask(
        &self,
        resource: &str,
        token: u64,
        successor: Option<&str>,
    ) -> Result<StepDownReply, Error> {
        let (name, successor) = (ResourceName::new(resource)?, successor.map(Label::new).transpose()?);
        let ask = move |store: Arc<dyn Store>| -> Pending<'static, StepDownReply> {
            Box::pin(async move { store.ask(&name, Token(token), successor.as_ref()).await })
        };
        self.ask_store(ask).await
    }

    /// Takes the ownership under `token` away at once. Until its worker learns of it, only the token protects.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn evict(&self, resource: &str, token: u64) -> Result<StepDownReply, Error> {
        let name = ResourceName::new(resource)?;
        self.ask_store(move |store| Box::pin(async move { store.evict(&name, Token(token)).await })).await
    }

    /// Ends the lease of a worker that is dead, or whose trust has run out, and with it all that it holds. Only for who knows
    /// that nothing of its work runs any more, such as its [guard](crate::guard): others may begin at once. A lease that is dead
    /// or unknown stays so.
    ///
    /// # Errors
    /// When the store does not answer. Then the lease runs out by itself.
    pub async fn close(&self, lease: LeaseId, why: Closing) -> Result<(), Error> {
        let request = Request {
            lease,
            seq: Seq(0),
            asked_at: self.opened.clocks.now(),
            limit: PATIENCE,
            judged_by: None,
            call: Call::Close(why),
        };
        let close = move |store: Arc<dyn Store>| -> Pending<'static, ()> {
            Box::pin(async move { store.call(&request).await.map(drop) })
        };
        self.ask_store(close).await
    }

    /// What the store's configuration takes away from the promises, as of now. Nothing: they hold as they stand.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn safety(&self) -> Result<Vec<Warning>, Error> {
        self.ask_store(|store| Box::pin(async move { store.safety().await })).await
    }

    /// Asks where the store's connections live, and waits for a while.
    async fn ask_store<T: Send + 'static>(
        &self,
        ask: impl FnOnce(Arc<dyn Store>) -> Pending<'static, T> + Send + 'static,
    ) -> Result<T, Error> {
        self.ask_store_within(PATIENCE, ask).await
    }

    async fn ask_store_within<T: Send + 'static>(
        &self,
        limit: Duration,
        ask: impl FnOnce(Arc<dyn Store>) -> Pending<'static, T> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let (store, driver) = self.opened.parts.get()?.clone();
        driver.spawn(Box::pin(async move {
            let said = tokio::time::timeout(limit, ask(store)).await;
            let silent = |_| Error::unavailable(format!("the store did not answer within {limit:?}"));
            // Whoever asked may have given up.
            let _gone = answer.send(said.map_err(silent).flatten());
        }))?;
        answered.await.map_err(|_| Error::unavailable("the store's driver has ended"))?
    }
}
