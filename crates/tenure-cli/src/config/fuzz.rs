//! Files and variables with settings, by the million: what is refused names the line and the key.

use std::path::PathBuf;

use testkit::fuzz::{Maker, Verdict, fuzz};

use super::file::File;
use super::keys::{KEYS, Key};
use super::refuse_misspelt;

const FILES: &[&str] = &[
    "store = \"sqlite:/var/lib/app/tenure.db\"\nnamespace = \"blue\"\nwait-for-store = true\n",
    "ttl = \"5s\"\ngrace = \"1.5s\"\nwait = \"0s\"\ntickets = 3\n",
    "label = 'worker-1'\nmetadata = '{\"zone\": \"eu\"}'\npriority = -5\n# a remark\n",
    "restart = \"on-failure\"\nexit-on-loss = false\ntz = \"Europe/Berlin\"\n",
    "once = true\nlabel = \"\"\"\nlong\"\"\"\ntickets = 0x10\n",
    "[table]\nttl = \"5s\"\n",
    "ttl = [\"5s\", {a = 1979-05-27T07:32:00Z}]\n",
];

const VALUES: &[&str] =
    &["15s", "true", "3", "-5", "blue", "{\"a\":1}", "never", "UTC", "sqlite:x.db", "memory:", "redis://h"];

fn cut(text: &str) -> String {
    text.chars().take(20).collect()
}

/// What steers a terminal is made harmless where it is printed.
fn names_the_line(said: &str) {
    let line = said.strip_prefix("`tenure.toml` line ").and_then(|rest| rest.split(':').next());
    assert!(line.is_some_and(|line| line.parse::<usize>().is_ok_and(|line| line > 0)), "{said}");
}

#[test]
fn settings() {
    let make = |make: &mut Maker| {
        let variable =
            make.text(&["TENURE_TTL", "TENURE_STORE", "TENURE_RESOURCE", "TENURE_EXIT_ON_LOSS", "TENURE_X"]);
        (make.text(FILES), make.below(KEYS.len()), make.text(VALUES), variable)
    };
    fuzz("settings", make, |(text, key, value, variable)| {
        let file = File { path: PathBuf::from("tenure.toml"), text: text.clone() };
        let settings = file.settings();
        match &settings {
            Ok(settings) => {
                let lines = text.split('\n').count();
                for (known, value, line) in settings {
                    assert!((1..=lines).contains(line), "{} on line {line} of {lines}", known.name);
                    assert_eq!(known.check(value), Ok(()), "{}", known.name);
                }
            }
            Err(failure) => {
                let said = failure.to_string();
                names_the_line(&said);
                assert!(said.len() <= 1_500, "{} bytes", said.len());
                let names_a_key = said.contains("this is not TOML")
                    || said.contains("there is no setting `")
                    || KEYS.iter().any(|known| said.contains(&format!("`{}`", known.name)));
                assert!(names_a_key, "{said}");
            }
        }
        let known = &KEYS[*key];
        if let Err(why) = known.check(value) {
            assert!(
                !why.is_empty() && why.len() <= 1_500,
                "{}: {} bytes, {}",
                known.name,
                why.len(),
                cut(&why)
            );
        }
        if KEYS.iter().map(Key::variable).any(|known| known == *variable) {
            assert!(KEYS.iter().any(|known| known.variable() == *variable));
        } else if let Err(failure) = refuse_misspelt(variable) {
            assert!(failure.to_string().contains(variable.as_str()) && failure.hinted().is_some());
        }
        Verdict::of(&settings)
    });
}
