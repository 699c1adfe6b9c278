//! One stint of work: from the start of an ownership until nothing of its work or cleanup runs any more.

use tenure_core::{Ending, Grant, Input, ResourceName};
use tokio::sync::mpsc;

use crate::engine::Command;

/// Whoever does a part of the work keeps one of these (shared) for as long as it does. When the last one is
/// dropped, wherever and for whatever reason, the driver learns that the work has ended; not before may the ticket
/// be free.
#[derive(Debug)]
pub(crate) struct Stint {
    pub(crate) resource: ResourceName,
    pub(crate) grant: Grant,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    /// Its end is that of the campaign, too: one message for both, where each wakes the driver.
    pub(crate) is_last: bool,
}

impl Drop for Stint {
    // req: S5 H1 H7
    fn drop(&mut self) {
        let (resource, token) = (&self.resource, self.grant.token);
        // The driver may have ended, and everything with it.
        let tell = |input| drop(self.commands.send(Command::Do(input)));
        if std::thread::panicking() {
            tell(Input::End { resource: resource.clone(), token, ending: Ending::Failed });
        }
        if self.is_last {
            // As above.
            drop(self.commands.send(Command::Depart(resource.clone(), token)));
        } else {
            tell(Input::Stopped { resource: resource.clone(), token });
        }
    }
}
