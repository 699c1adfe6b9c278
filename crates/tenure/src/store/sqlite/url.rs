//! `sqlite:PATH`, or `sqlite:PATH?proof=off` for work in processes that do not hold the lock of the lease.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::store::open::shown;

/// A file, and whether the deaths of its workers are proved.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) struct Url {
    pub(in crate::store) path: PathBuf,
    pub(in crate::store) proved: bool,
}

impl Url {
    pub(in crate::store) fn parse(url: &str) -> Result<Self, Error> {
        let rest = url.strip_prefix("sqlite:").unwrap_or(url);
        let (path, proved) = match rest.split_once('?') {
            None => (rest, true),
            Some((path, "proof=on")) => (path, true),
            Some((path, "proof=off")) => (path, false),
            Some((_, unknown)) => {
                let unknown: String = unknown.chars().take(60).collect();
                return Err(Error::refused(format!(
                    "sqlite URL parameter {unknown:?} is not proof=on or proof=off"
                )));
            }
        };
        if path.is_empty() || path == ":memory:" || path.starts_with("//") {
            let hint = match path.trim_start_matches('/') {
                "" | ":memory:" => {
                    "a sqlite URL is sqlite:PATH; for a store in memory use memory:".to_owned()
                }
                plain if path.starts_with("///") => format!("write sqlite:/{}", shown(plain)),
                plain => format!("write sqlite:{0}, or sqlite:/{0}", shown(plain)),
            };
            let path = shown(path);
            return Err(Error::refused(format!("sqlite path {path:?} is not the path of a file: {hint}")));
        }
        Ok(Self { path: path.into(), proved })
    }
}

/// Whether no file is there, or one in which nothing stands. What cannot be looked at is there, as far as we know:
/// opening it says what is wrong.
pub(super) fn is_nothing(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => found.is_file() && found.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
