//! Stores by their URLs. Within a process one URL and namespace is one store, with one driver.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use tenure_core::Namespace;
use tokio::sync::Mutex;

use super::{OpenStore, Pending, Store};
use crate::Error;
use crate::runtime::clock::Clocks;
use crate::runtime::driver::Driver;
use crate::runtime::process::PerProcess;

/// Every kind of store that this build can open.
const KINDS: &[Kind] = &[
    super::memory::KIND,
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    super::sqlite::KIND,
    #[cfg(all(feature = "redis", unix))]
    super::redis::KIND,
    #[cfg(feature = "postgres")]
    super::postgres::KIND,
];

/// A kind of store.
pub(super) struct Kind {
    /// How its URLs begin.
    pub(super) schemes: &'static [&'static str],
    /// Opens the namespace of the store at the URL. Runs on the driver's thread, which it must not block.
    pub(super) open: fn(String, Namespace, Missing) -> Opening,
}

/// A store while it is opened; nothing if there is none, and none was to be made.
type Opening = Pending<'static, Option<Arc<dyn Store>>>;

impl Kind {
    pub(super) fn of(url: &str) -> Result<&'static Self, Error> {
        let what = match url.split_once(':') {
            Some((scheme, _)) => match KINDS.iter().find(|kind| kind.schemes.contains(&scheme)) {
                Some(kind) => return Ok(kind),
                // What comes after it may be a secret.
                None => format!("unknown store URL scheme {:?}", beginning(scheme)),
            },
            None => format!("{:?} is not the URL of a store: it has no scheme", beginning(url)),
        };
        let known: Vec<&str> = schemes().collect();
        let known = known.join(", ");
        Err(Error::refused(format!(
            "{what}; this build knows {known}; other stores are features of the crate `tenure`"
        )))
    }
}

/// What to do where there is no namespace yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Create,
    Leave,
}

/// How the URLs of stores begin that this build can open: what stands before the colon.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    KINDS.iter().flat_map(|kind| kind.schemes).copied()
}

/// Opens the store at `url`.
///
/// # Errors
/// When the URL is not understood, or the store cannot be opened.
pub(crate) async fn open(url: &str, namespace: &Namespace) -> Result<OpenStore, Error> {
    let opened = share(url, namespace, Missing::Create).await?;
    opened.ok_or_else(|| Error::unavailable("cannot create the store"))
}

/// The same, unless there is none yet: nothing is made.
///
/// # Errors
/// As [`open`].
pub(crate) async fn find(url: &str, namespace: &Namespace) -> Result<Option<OpenStore>, Error> {
    share(url, namespace, Missing::Leave).await
}

/// The store that others of this process have open already, or a new one.
async fn share(url: &str, namespace: &Namespace, missing: Missing) -> Result<Option<OpenStore>, Error> {
    let kind = Kind::of(url)?;
    let key = (url.to_owned(), namespace.clone());
    // Held while the store is opened, so that two workers that start at once share one.
    let mut shared = SHARED.get(Mutex::default).lock().await;
    if let Some(opened) = shared.get(&key).and_then(Shared::revive) {
        return Ok(Some(opened));
    }
    let driver = Driver::start()?;
    let open = (kind.open)(url.to_owned(), namespace.clone(), missing);
    let Some(store) = driver.run(open).await? else { return Ok(None) };
    shared.retain(|_, shared| shared.store.strong_count() > 0);
    shared.insert(key, Shared::of(&store, &driver));
    Ok(Some(OpenStore::with(store, Clocks::System, driver)))
}

/// The stores that this process has open, as long as somebody uses them.
static SHARED: PerProcess<Mutex<BTreeMap<(String, Namespace), Shared>>> = PerProcess::new();

#[derive(Debug)]
struct Shared {
    store: Weak<dyn Store>,
    driver: Weak<Driver>,
}

impl Shared {
    fn of(store: &Arc<dyn Store>, driver: &Arc<Driver>) -> Self {
        Self { store: Arc::downgrade(store), driver: Arc::downgrade(driver) }
    }

    fn revive(&self) -> Option<OpenStore> {
        let (store, driver) = (self.store.upgrade()?, self.driver.upgrade()?);
        Some(OpenStore::with(store, Clocks::System, driver))
    }
}

/// So much of a text as shows what it is.
fn beginning(text: &str) -> String {
    let mut short: String = text.chars().take(20).collect();
    if short.len() < text.len() {
        short += "...";
    }
    short
}

/// What stands in a URL, as it may be told: its beginning, without what steers a terminal.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
