//! Opens a store to look at it or to ask an owner to step down. Creates nothing, and waits only briefly unless told to.

use std::time::Duration;

use tenure::admin::{Admin, ResourceView};
use tenure::store::Entry;
use tenure::types::ResourceName;
use tenure::{Error, ErrorKind};

use crate::exit::Failure;
use crate::output::{grants_nothing, say};
use crate::place::Place;
use crate::settings::Store;

/// How long a store may take to open: within five seconds people read that it does not answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often to look for a store that is not there.
const AGAIN: Duration = Duration::from_millis(250);

impl Store {
    /// The store; its name is printed. Nothing if it is the default one, which does not exist yet.
    pub(crate) async fn open(&self) -> Result<Option<Admin>, Failure> {
        match self.look().await? {
            None if self.place.is_default() => {
                say(format!("nothing has been run yet: there is no store at `{}`", self.place));
                Ok(None)
            }
            // "Nobody owns anything" would be a dangerous answer to a misspelt path.
            None => Err(self.is_not_there()),
            found => Ok(found),
        }
    }

    /// The store, which must exist; its name is printed.
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
            self.say_which();
        }
        Ok(found)
    }

    /// Prints which store this is.
    pub(crate) fn say_which(&self) {
        say(format!("store `{}`, namespace `{}`", self.place, self.namespace));
    }

    fn is_not_there(&self) -> Failure {
        let failure = Failure::new(format!("there is no store at `{}`", self.place));
        if self.place.is_default() {
            return failure.hint("nothing has been run yet; `tenure run` creates it");
        }
        if let Some(folder) = self.place.missing_folder() {
            let folder = folder.display();
            return failure.hint(format!(
                "is the path right? There is no folder `{folder}`: create it with `mkdir -p {folder}`, then the store with `tenure run`"
            ));
        }
        if self.place.is_file() {
            return failure.hint("is the path right? `tenure run --store ..` creates the store");
        }
        Failure::new(format!("nobody has used the namespace `{}` at `{}` yet", self.namespace, self.place))
            .hint("are server, database and namespace right? `tenure run` creates the namespace")
    }
}

/// Opens a store within a few seconds; if it `waits`, as soon as the store is there.
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
            say(format!("waiting for the store: {}", Failure::from(error)));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// One resource or all of them, with their history. If the one was never claimed, prints that and returns nothing.
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
            say(format!("`{name}` was never claimed"));
            Ok((Vec::new(), Vec::new()))
        }
    }
}

/// One resource, which must have been claimed once.
pub(crate) async fn known(store: &Admin, resource: &ResourceName) -> Result<ResourceView, Failure> {
    if let Some(view) = store.read(resource.as_str()).await? {
        return Ok(view);
    }
    let failure = match store.condition().await?.withheld {
        Some(left) => Failure::new(format!(
            "`{resource}` was never claimed, or the store has lost it: {}",
            grants_nothing(left)
        )),
        None => Failure::new(format!("`{resource}` was never claimed")),
    };
    let names = store.read_all().await?;
    let names: Vec<&str> = names.iter().map(|view| view.resource.as_str()).collect();
    // The resource of the job that people call `migration-42` is `once:migration-42`.
    let plain = |name: &str| name.split_once(':').is_some_and(|(_, rest)| rest == resource.as_str());
    let same = names.iter().copied().find(|name| plain(name));
    let names = same.as_ref().map_or(names.as_slice(), std::slice::from_ref);
    let typed = same.unwrap_or(resource.as_str());
    Err(failure.did_you_mean(typed, names, || "`tenure status` lists what was claimed".to_owned()))
}
