//! Runs the work of one occurrence in a task of its own, in the user's runtime: a panic in it stays there.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::campaign::callbacks::Running;
use crate::campaign::state::CampaignState;
use crate::campaign::work_guard::WorkGuard;
use crate::outcome::{IntoOutcome, Outcome};

pub(super) fn in_a_task<F>(
    state: Arc<CampaignState>,
    guard: &Arc<WorkGuard>,
    make: impl FnOnce() -> F,
) -> Running
where
    F: Future<Output: IntoOutcome> + Send + 'static,
{
    let token = guard.grant.token;
    let guarded = || {
        let work = make();
        async move {
            let mut work = pin!(work);
            poll_fn(|cx| {
                // After a pause that outlasts the trust, no more of it is done.
                if !state.may_go_on(token) {
                    return Poll::Ready(Outcome::Unfinished);
                }
                work.as_mut().poll(cx).map(IntoOutcome::into_outcome)
            })
            .await
        }
    };
    Running::start(guard, guarded)
}
