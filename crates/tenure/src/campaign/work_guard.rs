//! The guard of the work of one ownership: it lives until nothing of the work or its cleanup runs any more.

use std::sync::Arc;

use tenure_core::{EndReason, Grant, Input, ResourceName};

use crate::runtime::engine::{Command, Commands};

/// Whoever does a part of the work keeps one of these (shared) for as long as it does. When the last one is
/// dropped, wherever and for whatever reason, the driver learns that the work has ended; not before may the ticket
/// be free.
#[derive(Debug)]
pub(crate) struct WorkGuard {
    pub(crate) resource: ResourceName,
    pub(crate) grant: Grant,
    pub(crate) commands: Commands,
}

impl WorkGuard {
    pub(crate) fn new(resource: ResourceName, grant: Grant, commands: Commands) -> Arc<Self> {
        Arc::new(Self { resource, grant, commands })
    }
}

impl Drop for WorkGuard {
    // req: S5 H1 H7
    fn drop(&mut self) {
        let (resource, token) = (&self.resource, self.grant.token);
        // The driver may have ended, and everything with it.
        let tell = |input| drop(self.commands.send(Command::Do(input)));
        if std::thread::panicking() {
            tell(Input::End { resource: resource.clone(), token, ending: EndReason::Failed });
        }
        tell(Input::Stopped { resource: resource.clone(), token });
    }
}
