//! `tenure.toml`: where it is, and what it says.

use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::FILE_VARIABLE;
use super::keys::{Form, KEYS, Key};
use crate::exit::Failure;
use crate::output::beginning;
use crate::place::folder_of_user;

const NAME: &str = "tenure.toml";
/// A larger file is hardly one with settings.
const LARGEST: u64 = 64 * 1024;

/// The file, as it was read.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The places where it is looked for, in order, unless it is named.
pub(super) fn places() -> Vec<PathBuf> {
    let of_user = folder_of_user("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("tenure").join(NAME));
    std::iter::once(PathBuf::from(NAME)).chain(of_user).collect()
}

impl File {
    /// The first file that exists. If that cannot be read it is an error.
    pub(super) fn find() -> Result<Option<Self>, Failure> {
        if let Some(named) = std::env::var_os(FILE_VARIABLE).filter(|named| !named.is_empty()) {
            let path = PathBuf::from(named);
            let missing = || {
                Failure::new(format!("there is no file `{}`, which {FILE_VARIABLE} names", path.display()))
            };
            return Self::read(path.clone())?.ok_or_else(missing).map(Some);
        }
        for path in places() {
            if let Some(file) = Self::read(path)? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// `None` if there is no such file.
    fn read(path: PathBuf) -> Result<Option<Self>, Failure> {
        let cannot =
            |error: &std::io::Error| Failure::new(format!("cannot read `{}`", path.display())).because(error);
        let file = match std::fs::File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(&error)),
            Ok(file) => file,
        };
        let mut text = String::new();
        file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| cannot(&error))?;
        if text.len() as u64 > LARGEST {
            return Err(Failure::new(format!("`{}` is larger than {} KiB", path.display(), LARGEST / 1024)));
        }
        Ok(Some(Self { path, text }))
    }

    /// Its settings, checked, each with its line.
    pub(super) fn settings(&self) -> Result<Vec<(&'static Key, String, usize)>, Failure> {
        let table = DeTable::parse(&self.text).map_err(|error| {
            let why = error.message().lines().next().unwrap_or_default().to_owned();
            self.wrong(error.span().unwrap_or_default(), &format!("this is not TOML: {why}"))
        })?;
        let mut settings = Vec::new();
        for (written, value) in table.get_ref() {
            let Some(key) = KEYS.iter().find(|key| key.name == written.get_ref().as_ref()) else {
                return Err(self.unknown(written.get_ref(), written.span()));
            };
            let text = match (value.get_ref(), key.form) {
                (DeValue::String(text), Form::Text) => text.to_string(),
                // A number that is too large for i64 is too large for every setting; the check refuses it as it is written.
                (DeValue::Integer(number), Form::Number) => {
                    let read = i64::from_str_radix(number.as_str(), number.radix());
                    read.map_or_else(|_| number.as_str().to_owned(), |read| read.to_string())
                }
                (DeValue::Boolean(switch), Form::Switch) => switch.to_string(),
                (other, form) => {
                    let what =
                        format!("`{}` has the type {}; write {}", key.name, other.type_str(), form.wanted());
                    return Err(self.wrong(value.span(), &what));
                }
            };
            key.check(&text).map_err(|why| self.wrong(value.span(), &format!("`{}`: {why}", key.name)))?;
            settings.push((key, text, self.line(&value.span())));
        }
        Ok(settings)
    }

    fn unknown(&self, written: &str, at: Range<usize>) -> Failure {
        let keys: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        self.wrong(at, &format!("there is no setting `{}`", beginning(written))).did_you_mean(
            written,
            &keys,
            || format!("there are {}", keys.join(", ")),
        )
    }

    fn wrong(&self, at: Range<usize>, what: &str) -> Failure {
        Failure::new(format!("`{}` line {}: {what}", self.path.display(), self.line(&at)))
    }

    /// Counted from one.
    fn line(&self, at: &Range<usize>) -> usize {
        1 + self.text.as_bytes().iter().take(at.start).filter(|byte| **byte == b'\n').count()
    }
}
