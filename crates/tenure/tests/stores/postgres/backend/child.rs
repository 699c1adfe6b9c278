//! This program, started again with an environment of its own.

use std::ffi::OsStr;

use tenure::store::PostgresBackend;
use testkit::child::{Child, again, say};

use super::fixture::namespace;

const URL: &str = "TENURE_TEST_URL";

/// Opens a backend in a process with this environment, and tells what came of it.
pub(crate) fn opens(url: &str, environment: &[(&str, &OsStr)]) -> String {
    let mut command = again(module_path!(), &[]);
    for inherited in ["PGPASSWORD", "PGPASSFILE", "SSL_CERT_DIR", "SSL_CERT_FILE"] {
        command.env_remove(inherited);
    }
    command.env(URL, url).envs(environment.iter().copied());
    Child::start(command).hears()
}

/// Not a test but the other process; without a URL it is over at once.
#[test]
fn a_child_plays_its_role() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(PostgresBackend::open(&url, &namespace("opened"))) {
        Ok(_) => say("opened"),
        Err(error) => say(&format!("{:?}: {error} {error:?}", error.kind())),
    }
}
