//! Runs the work of one occurrence in a task of its own, in the user's runtime: a panic in it stays there.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::Result;

use tokio::task::JoinHandle;
use tracing::Instrument;

use super::{Ended, Ends};
use crate::campaign::callbacks::words;
use crate::campaign::state::Seat;
use crate::campaign::work_guard::Stint;

/// Runs it to its end, if making it did not panic. When this is dropped, the work is dropped at its next await.
pub(super) async fn in_a_task<F>(seat: Arc<Seat>, stint: Arc<Stint>, made: Result<F>) -> Ended
where
    F: Future<Output: Ends> + Send + 'static,
{
    let work = match made {
        Ok(work) => work,
        Err(panic) => return Ended::Failed(words(&*panic)),
    };
    let guarded = async move {
        let mut work = pin!(work);
        let ended = poll_fn(|cx| {
            // After a pause that outlasted the trust, no more of it is done.
            if !seat.may_go_on(stint.grant.token) {
                return Poll::Ready(Ended::Unfinished);
            }
            work.as_mut().poll(cx).map(Ends::ended)
        })
        .await;
        // Also when the runtime ends under it, the ticket is not free before this has.
        drop(stint);
        ended
    };
    let mut task = Task(tokio::spawn(guarded.in_current_span()));
    match (&mut task.0).await {
        Ok(ended) => ended,
        Err(error) => error.try_into_panic().map_or(Ended::Unfinished, |panic| Ended::Failed(words(&*panic))),
    }
}

struct Task(JoinHandle<Ended>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
