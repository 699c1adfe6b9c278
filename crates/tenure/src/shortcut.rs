//! A release that the caller sends by itself: the driver learns what becomes of it, but need not run before it leaves. Of
//! two releases at once one goes this way; many go together, by the driver.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tenure_core::{Answer, Departure, Request, ResourceName};
use tokio::runtime::Handle;

use crate::Error;
use crate::clock::Clocks;
use crate::store::Store;

/// The way from a worker's users to its store.
#[derive(Debug)]
pub(crate) struct Shortcut {
    /// For whoever comes first.
    departure: Mutex<Option<Departure>>,
    /// The engine's, which may have ended.
    store: Weak<dyn Store>,
    driver: Handle,
    clocks: Clocks,
}

/// A request that has been sent.
pub(crate) struct Sent {
    pub(crate) request: Request,
    pub(crate) answer: Answering,
}

/// A request on its way, and what the store said to it.
pub(crate) type Answering = Pin<Box<dyn Future<Output = (Request, Result<Answer, Error>)> + Send>>;

pub(crate) fn ask(store: Arc<dyn Store>, request: Request) -> Answering {
    Box::pin(async move {
        let answer = store.call(&request).await;
        (request, answer)
    })
}

impl Shortcut {
    pub(crate) fn new(store: &Arc<dyn Store>, driver: Handle, clocks: Clocks) -> Arc<Self> {
        Arc::new(Self { departure: Mutex::default(), store: Arc::downgrade(store), driver, clocks })
    }

    /// Lets the next release of what is owned by now be sent this way, or none.
    pub(crate) fn allow(&self, departure: Option<Departure>) {
        *self.departure() = departure;
    }

    /// Sends the release, if that is allowed now. The work has ended, and the ownership is not relied on any more.
    pub(crate) fn release(&self, resource: &ResourceName) -> Option<Sent> {
        let departure = self.departure().take()?;
        let request = departure.request(self.clocks.now(), resource.clone());
        let mut answer = ask(self.store.upgrade()?, request.clone());
        // Whatever it needs of a runtime is the driver's, as if it were there.
        let entered = self.driver.enter();
        // As far as it goes without waiting; the driver goes on from there.
        let first = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(entered);
        let answer = match first {
            Poll::Ready(answered) => Box::pin(std::future::ready(answered)),
            Poll::Pending => answer,
        };
        Some(Sent { request, answer })
    }

    fn departure(&self) -> MutexGuard<'_, Option<Departure>> {
        // No step of it can be left half done.
        self.departure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
