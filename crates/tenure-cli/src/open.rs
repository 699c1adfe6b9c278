//! Opening the store for those who only look or ask: nothing is made, and nobody waits for long unless told to.

use std::time::Duration;

use tenure::admin::{Admin, ResourceView};
use tenure::store::Entry;
use tenure::types::ResourceName;
use tenure::{Error, ErrorKind};

use crate::exit::Failure;
use crate::output;
use crate::place::Place;
use crate::settings::Store;

/// How long a store may take to be opened: people are told within five seconds that it is not there.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often one that is not there is looked for.
const AGAIN: Duration = Duration::from_millis(250);

impl Store {
    /// The store, and people are told which; nothing if it is the default one and nobody has made it yet.
    pub(crate) async fn open(&self) -> Result<Option<Admin>, Failure> {
        match self.look().await? {
            None if self.place.is_default() => {
                output::nothing_yet(&self.place);
                Ok(None)
            }
            // "Nobody owns anything" would be a dangerous answer to a misspelt path.
            None => Err(self.is_not_there()),
            found => Ok(found),
        }
    }

    /// The store, which has to be there; people are told which.
    pub(crate) async fn require(&self) -> Result<Admin, Failure> {
        self.look().await?.ok_or_else(|| self.is_not_there())
    }

    async fn look(&self) -> Result<Option<Admin>, Failure> {
        let find = async || {
            let found = Admin::find(self.place.url(), self.namespace.as_str()).await?;
            if found.is_none() && self.waits {
                return Err(Error::unavailable(self.is_not_there().to_string()));
            }
            Ok(found)
        };
        let found = patiently(&self.place, self.waits, find).await?;
        if found.is_some() {
            output::which_store(&self.place, self.namespace.as_str());
        }
        Ok(found)
    }

    fn is_not_there(&self) -> Failure {
        let failure = Failure::new(format!("there is no store at `{}`", self.place));
        if self.place.is_default() {
            return failure.hint("nothing has been run yet; `tenure run` makes it");
        }
        if let Some(folder) = self.place.missing_folder() {
            return failure.hint(format!("is the path right? There is no folder `{0}`: `mkdir -p {0}` makes it, then `tenure run` the store", folder.display()));
        }
        if self.place.is_file() {
            return failure.hint("`tenure run --store ..` makes it; is the path right?");
        }
        Failure::new(format!("nobody has used the namespace `{}` at `{}` yet", self.namespace, self.place))
            .hint("`tenure run` makes it; are server, database and namespace right?")
    }
}

/// Opens a store within a few seconds or, if it is to be waited for, whenever it is there.
pub(crate) async fn patiently<T>(
    place: &Place,
    waits: bool,
    open: impl AsyncFn() -> Result<T, Error>,
) -> Result<T, Failure> {
    let mut was_told = false;
    loop {
        let opened = tokio::time::timeout(PATIENCE, open()).await;
        let opened = opened.unwrap_or_else(|_| {
            Err(Error::unavailable(format!("cannot open `{place}`: no answer within {PATIENCE:?}")))
        });
        let error = match opened {
            Err(error)
                if waits && (error.kind() == ErrorKind::Unavailable || place.missing_folder().is_some()) =>
            {
                error
            }
            Err(error) => return Err(place.cannot_open(error)),
            Ok(opened) => return Ok(opened),
        };
        if !std::mem::replace(&mut was_told, true) {
            output::waiting_for_store(&Failure::from(error));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// One resource or all of them, with their history. If the one was never claimed, tells people so and returns nothing.
pub(crate) async fn read(
    store: &Admin,
    resource: Option<&ResourceName>,
) -> Result<(Vec<ResourceView>, Vec<Entry>), Failure> {
    let Some(name) = resource.map(ResourceName::as_str) else {
        return Ok((store.read_all().await?, store.history_of_all().await?));
    };
    match store.read(name).await? {
        Some(view) => Ok((vec![view], store.history(name).await?)),
        None => {
            output::never_claimed(name);
            Ok((Vec::new(), Vec::new()))
        }
    }
}

/// One resource, which has to have been claimed once.
pub(crate) async fn known(store: &Admin, resource: &ResourceName) -> Result<ResourceView, Failure> {
    if let Some(view) = store.read(resource.as_str()).await? {
        return Ok(view);
    }
    let failure = match store.condition().await?.withheld {
        Some(left) => Failure::new(format!(
            "`{resource}` was never claimed, or the store has lost it: {}",
            output::grants_nothing(left)
        )),
        None => Failure::new(format!("`{resource}` was never claimed")),
    };
    let names = store.read_all().await?;
    let names: Vec<&str> = names.iter().map(|view| view.resource.as_str()).collect();
    // `migration-42` is what people typed when they made `once:migration-42`.
    let plain = |name: &str| name.split_once(':').is_some_and(|(_, rest)| rest == resource.as_str());
    let same = names.iter().copied().find(|name| plain(name));
    let names = same.as_ref().map_or(names.as_slice(), std::slice::from_ref);
    let typed = same.unwrap_or(resource.as_str());
    Err(failure.did_you_mean(typed, names, || "`tenure status` lists what was claimed".to_owned()))
}
