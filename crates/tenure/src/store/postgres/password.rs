//! A password that is not in the URL: `PGPASSWORD`, else the file `PGPASSFILE` or `~/.pgpass`, as with libpq.

use crate::runtime::events::{self, StoreChange};
use crate::store::{Impact, Warning};
use std::fs;
use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Where sockets are when nobody says otherwise; the file calls it `localhost`.
const SOCKETS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The password for a configuration with a single host.
pub(super) fn of(config: &Config) -> Option<String> {
    if let Some(password) = variable("PGPASSWORD") {
        return Some(password);
    }
    let file = variable("PGPASSFILE").map(PathBuf::from);
    let file = file.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".pgpass")))?;
    if !is_secret(&file) {
        return None;
    }
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (Some(Host::Unix(path)), _) if SOCKETS.iter().any(|known| path.as_os_str() == *known) => {
            "localhost".to_owned()
        }
        (Some(Host::Unix(path)), _) => path.to_string_lossy().into_owned(),
        (None, address) => address?.to_string(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().map(str::to_owned).or_else(|| variable("USER"))?;
    let database = config.get_dbname().unwrap_or(&user);
    find(&fs::read_to_string(file).ok()?, [&host, &port, database, &user])
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A file that others can read is ignored, with a warning.
fn is_secret(file: &PathBuf) -> bool {
    let Ok(found) = fs::metadata(file) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if found.mode() & 0o077 != 0 {
            events::store(StoreChange::Warned(Warning {
                cost: Impact::Time,
                what: format!("the password file `{}` is ignored: others have access to it", file.display()),
                hint: "chmod it to 0600".to_owned(),
            }));
            return false;
        }
    }
    found.is_file()
}

/// The password on the first line `host:port:database:user:password` that matches, where `*` matches anything.
fn find(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split(line);
        let (password, place) = fields.split_last()?;
        let fits = place.len() == 4
            && place.iter().zip(wanted).all(|((field, is_any), wanted)| *is_any || field == wanted);
        (fits && !password.0.is_empty()).then(|| password.0.clone())
    })
}

/// The fields of a line, and whether each is a bare `*`. A backslash takes the next character literally. The fifth
/// field is the rest of the line.
fn split(line: &str) -> Vec<(String, bool)> {
    let mut fields = vec![(String::new(), false)];
    let mut bare = true;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let count = fields.len();
        let Some((field, is_any)) = fields.last_mut() else { break };
        match character {
            ':' if count < 5 => {
                *is_any = bare && field == "*";
                fields.push((String::new(), false));
                bare = true;
            }
            '\\' => {
                bare = false;
                field.extend(characters.next());
            }
            other => field.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_matches_counts() {
        let text = "# a:1:b:c:comment\na:1:b:me:first\n*:*:*:me:any\n*:*:*:you:a\\:b:c\\\\d\na:1:b:none:\n";

        assert_eq!(find(text, ["a", "1", "b", "me"]).as_deref(), Some("first"));
        assert_eq!(find(text, ["x", "1", "b", "me"]).as_deref(), Some("any"));
        assert_eq!(find(text, ["x", "1", "b", "you"]).as_deref(), Some("a:b:c\\d"));
        assert_eq!(find(text, ["a", "1", "b", "none"]), None);
        assert_eq!(find(text, ["a", "1", "b", "other"]), None);
    }

    #[test]
    fn an_escaped_star_is_a_name() {
        let text = "\\*:*:b\\:c:me:secret\n";

        assert_eq!(find(text, ["*", "1", "b:c", "me"]).as_deref(), Some("secret"));
        assert_eq!(find(text, ["a", "1", "b:c", "me"]), None);
    }
}
