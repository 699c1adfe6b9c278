//! Workers with one label: harmless, because the lease is the identity, and told, because nobody means it so.

use std::collections::BTreeSet;

use tenure::admin::{Admin, ResourceView};

use crate::output;
use crate::settings;

/// Looks once whether another that competes for the same has this label. Nothing depends on it.
pub(crate) fn look(settings: &settings::Run, label: &str) {
    let (url, namespace) =
        (settings.store.place.url().to_owned(), settings.store.namespace.as_str().to_owned());
    let (resource, label) = (settings.resource.as_str().to_owned(), label.to_owned());
    tokio::spawn(async move {
        let store = Admin::open_named(&url, &namespace).await.ok()?;
        let view = store.read(&resource).await.ok()??;
        if doubles(&view).contains(label.as_str()) {
            output::same_label(&resource, &label);
        }
        Some(())
    });
}

/// The labels that more than one worker of a resource has.
// req: T11
pub(crate) fn doubles(view: &ResourceView) -> BTreeSet<&str> {
    let owners = view.owners.iter().map(|owner| owner.worker.as_str());
    let waiters = view.waiters.iter().map(|waiter| waiter.worker.as_str());
    let mut seen = BTreeSet::new();
    owners.chain(waiters).filter(|label| !seen.insert(*label)).collect()
}
