//! Where a password comes from, and that nobody is told.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;

use tenure::ErrorKind;
use tenure::store::PostgresBackend;
use testkit::postgres::{Options, Postgres};

use super::child::opens;
use super::fixture::namespace;

fn server() -> Postgres {
    let server = Options::new().rules("host all all 127.0.0.1/32 scram-sha-256").start();
    server.sql("CREATE ROLE app LOGIN PASSWORD 'sword:fish'; GRANT CREATE ON DATABASE postgres TO app");
    server
}

#[tokio::test]
async fn passwords_are_asked_for_and_never_told() {
    let (server, name) = (server(), namespace("secret"));
    let url = |user: &str| format!("postgres://{user}@127.0.0.1:{}/postgres", server.port());

    let opened = PostgresBackend::open(&url("app:sword%3Afish"), &name).await.expect("the right password");
    assert!(!format!("{opened:?}").contains("fish"));

    let wrong = PostgresBackend::open(&url("app:hunter2"), &name).await.expect_err("a wrong password");
    assert_eq!(wrong.kind(), ErrorKind::Refused);
    assert!(!format!("{wrong} {wrong:?}").contains("hunter2"), "{wrong:?}");
}

#[test]
fn the_environment_and_the_password_file_are_read_as_by_libpq() {
    let server = server();
    let url = format!("postgres://app@127.0.0.1:{}/postgres", server.port());
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join(".pgpass");
    let write = |path: &std::path::Path, lines: &str, mode: u32| {
        std::fs::write(path, lines).expect("a file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("rights");
    };
    let folder = ("HOME", home.path().as_os_str());
    let at_home = || opens(&url, &[folder]);

    let told = at_home();
    assert!(told.starts_with("Refused") && told.contains("~/.pgpass"), "{told}");
    let variable = ("PGPASSWORD", OsStr::new("sword:fish"));
    assert_eq!(opens(&url, &[folder, variable]), "opened");
    let right =
        format!("# ours\n127.0.0.1:1:postgres:app:other\n127.0.0.1:{}:*:app:sword\\:fish\n", server.port());
    write(&file, &right, 0o600);
    assert_eq!(at_home(), "opened");
    write(&file, &right, 0o640);
    assert!(at_home().contains("asks for a password"), "others can read it");
    let elsewhere = home.path().join("elsewhere");
    write(&elsewhere, "*:*:*:*:sword:fish\n", 0o600);
    assert_eq!(opens(&url, &[folder, ("PGPASSFILE", elsewhere.as_os_str())]), "opened");
    // What stands in the URL counts more.
    let wrong = opens(&url.replace("app@", "app:hunter2@"), &[folder, variable]);
    assert!(wrong.starts_with("Refused") && !wrong.contains("hunter2") && !wrong.contains("fish"), "{wrong}");
}
