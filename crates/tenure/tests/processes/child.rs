//! Other processes: this program, started again with a role to play.

use std::process::Command;

use tenure::types::OnOverdue;
use testkit::child::Child;
use testkit::part::Part;

/// Another process with this part, to be started.
pub(crate) fn command(part: &Part) -> Command {
    part.command(module_path!())
}

/// Starts another process with this part.
pub(crate) fn start(part: &Part) -> Child {
    Child::start(command(part))
}

/// Not a test but the other process; without a role it is over at once.
#[test]
fn a_child_plays_its_role() {
    let Some(part) = Part::of_this_process() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match part.role.as_str() {
            "worker" => super::worker::works(&part).await,
            "application" => super::signals::applies(&part).await,
            "broken worker" => super::worker::works_for_ever(&part).await,
            "waits" => super::pauses::waits(&part).await,
            "blocked" => super::pauses::blocked(&part).await,
            "blocked with a beacon" => super::pauses::blocked_with_a_beacon(&part).await,
            "overdue" => super::pauses::overdue(&part, OnOverdue::Report).await,
            "overdue, and exits" => super::pauses::overdue(&part, OnOverdue::Exit).await,
            "watches the clock" => super::pauses::watches_the_clock(&part).await,
            "jumps" => super::pauses::jumps(&part).await,
            other => panic!("there is no role {other:?}"),
        }
    });
}
