//! Where the store is: the URL that was named, else a file in the user's state folder.

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::output::beginning;

/// May hold a password, so no command inherits it.
pub(crate) const VARIABLE: &str = "TENURE_STORE";

/// What the URL of a store may begin with. Not `memory`, which belongs to one process.
fn schemes() -> impl Iterator<Item = &'static str> {
    tenure::store::schemes().filter(|scheme| *scheme != "memory")
}

/// The place of the store. Printed, it hides the password.
pub(crate) struct Place {
    url: String,
    /// The folder of the default store, which is created when it is needed.
    folder: Option<PathBuf>,
}

impl Place {
    pub(crate) fn find(named: Option<String>) -> Result<Self, Failure> {
        match named {
            // The command would look protected and would not be.
            Some(url) if url.split(':').next() == Some("memory") => Err(Failure::new(format!(
                "`{}` belongs to one process, and protects nothing from another",
                url.chars().take(60).collect::<String>()
            ))
            .hint("name a store that all of them use, such as sqlite:PATH or redis://HOST")),
            Some(url) => {
                Self::check_scheme(&url)?;
                Ok(Self { url, folder: None })
            }
            None => Self::default_of_user(),
        }
    }

    /// Whether it names a store that processes can share.
    fn check_scheme(url: &str) -> Result<(), Failure> {
        let scheme = url.split(':').next().unwrap_or_default();
        if url.contains(':') && schemes().any(|known| known == scheme) {
            return Ok(());
        }
        let what = match url.contains(':') {
            // What comes after it may be a secret.
            true => format!("unknown store URL scheme {:?}", beginning(scheme)),
            false => format!("{:?} is not the URL of a store", beginning(url)),
        };
        let failure = Failure::new(format!("{what}; known: {}", schemes().collect::<Vec<_>>().join(", ")));
        let is_path = !url.contains(':') || Path::new(url).exists();
        Err(if is_path { failure.hint("a SQLite file is named sqlite:PATH") } else { failure })
    }

    fn default_of_user() -> Result<Self, Failure> {
        let state = folder_of_user("XDG_STATE_HOME", ".local/state");
        let name_one = "name a store with --store sqlite:PATH, or in TENURE_STORE";
        let folder = state.map(|state| state.join("tenure")).ok_or_else(|| {
            Failure::new("there is no default store: neither XDG_STATE_HOME nor HOME is an absolute path")
                .hint(name_one)
        })?;
        let path = folder.join("tenure.db");
        // A URL is UTF-8, and a question mark begins its parameters.
        let path = path.to_str().filter(|path| !path.contains('?')).ok_or_else(|| {
            let what = format!("there is no default store: {} cannot stand in a URL", folder.display());
            Failure::new(what).hint(name_one)
        })?;
        Ok(Self { url: format!("sqlite:{path}"), folder: Some(folder) })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether it was not named.
    pub(crate) fn is_default(&self) -> bool {
        self.folder.is_some()
    }

    /// Whether the store finds out by itself that a process is gone.
    pub(crate) fn proves_deaths(&self) -> bool {
        self.is_file() && !self.url.ends_with("?proof=off")
    }

    /// Whether it is a file of this host, and goes by the host's own clock.
    pub(crate) fn is_file(&self) -> bool {
        self.url.starts_with("sqlite:")
    }

    /// The folder of a file, if it is not there; it may be mounted later.
    pub(crate) fn missing_folder(&self) -> Option<&Path> {
        let path = self.url.strip_prefix("sqlite:")?;
        let folder = Path::new(path.split('?').next().unwrap_or(path)).parent()?;
        (!folder.as_os_str().is_empty() && !folder.exists()).then_some(folder)
    }

    /// Creates the folder of the default store, for this user only. The folder of a named store must exist.
    pub(crate) fn make_folder(&self) -> Result<(), Failure> {
        let Some(folder) = &self.folder else { return Ok(()) };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
            Failure::new(format!("cannot create the folder `{}`", folder.display()))
                .because(&error)
                .hint("name a store with --store sqlite:PATH, or in TENURE_STORE")
        })
    }

    /// Why the store could not be opened, and what may help.
    pub(crate) fn cannot_open(&self, error: tenure::Error) -> Failure {
        let failure = Failure::from(error);
        if let Some(folder) = self.missing_folder() {
            return failure.hint(format!(
                "create it with `mkdir -p {}`; with --wait-for-store it may be mounted later",
                folder.display()
            ));
        }
        failure
    }
}

/// The folder that a variable names, else the one below the user's home.
pub(crate) fn folder_of_user(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.url))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

/// The URL without its password, and of a server's URL without its parameters, which may hold one, too. Where it
/// cannot be told what is the password, only the scheme is shown.
pub(crate) fn without_secrets(url: &str) -> String {
    let shown: String = url.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let is_scheme = |(scheme, _): &(&str, &str)| !scheme.contains([':', '/', '@', '?']);
    let Some((scheme, rest)) = shown.split_once("://").filter(is_scheme) else {
        // A file has no password. With anything else a slash may have been forgotten.
        let is_plain = shown.starts_with("sqlite:") || !shown.contains(['@', '?']);
        let scheme = shown.split_once(':').map_or(String::new(), |(scheme, _)| format!("{scheme}:"));
        let is_scheme = !scheme.contains(['@', '?']);
        return match is_plain {
            true => shown,
            false if is_scheme => format!("{scheme}***"),
            false => "***".to_owned(),
        };
    };
    // Up to the last: a password may hold one that nobody escaped.
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let (host, parameters) = rest.split_once('?').map_or((rest, ""), |(host, _)| (host, "?.."));
    match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
        None => format!("{scheme}://{host}{parameters}"),
        Some((user, password)) if user.contains('?') || password.contains('?') => format!("{scheme}://***"),
        Some((user, "")) => format!("{scheme}://{user}@{host}{parameters}"),
        Some((user, _)) => format!("{scheme}://{user}:***@{host}{parameters}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("sqlite:/var/x.db?proof=off", "sqlite:/var/x.db?proof=off"),
            ("redis://cache:6379", "redis://cache:6379"),
            ("redis://:secret@cache:6379/0", "redis://:***@cache:6379/0"),
            ("postgres://me:se@cret@db/x", "postgres://me:***@db/x"),
            ("postgres://me:a/b:c@db/x", "postgres://me:***@db/x"),
            ("postgres://me@db/x?password=secret", "postgres://me@db/x?.."),
            ("postgres://db/x?user=a@b&password=secret", "postgres://***"),
            ("postgres://me:se?cret@db/x", "postgres://***"),
            ("redis+unix:/run/redis.sock?pass=secret", "redis+unix:***"),
            ("redis:/me:secret@cache", "redis:***"),
            ("unix:/run/redis.sock?user=a://b&pass=secret", "unix:***"),
            ("host=db?password=secret", "***"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
