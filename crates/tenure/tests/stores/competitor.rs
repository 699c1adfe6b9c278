//! Workers in processes of their own: this program, started again to compete.

use std::process::Command;

use testkit::part::Part;

/// Another process with this part, to be started.
pub(crate) fn command(part: &Part) -> Command {
    part.command(module_path!())
}

/// Not a test but the other process; without a role it is over at once.
#[test]
fn a_child_plays_its_role() {
    let Some(part) = Part::of_this_process() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match part.role.as_str() {
            "worker" => super::worker::works(&part).await,
            "broken worker" => super::worker::works_for_ever(&part).await,
            other => panic!("there is no role {other:?}"),
        }
    });
}
