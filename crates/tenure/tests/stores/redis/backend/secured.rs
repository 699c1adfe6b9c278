//! TLS, passwords and rights.

use super::*;
use crate::redis::secured::certificates;

#[tokio::test]
async fn tls_works_with_the_authority_that_the_url_names_and_is_verified() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = certificates(folder.path(), "localhost");
    let server = Options::new().tls(tls.clone()).start();
    let url = format!("rediss://localhost:{}", server.tls_port());
    let named = format!("{url}?ca={}", tls.authority.display());

    let backend = open(&named).await;
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("c")).await.expect("a subscription");
    let mut created = creation(resource("a"), "a");
    created.signals.push(signal(&["c"], "hello"));
    apply(&backend, created).await;
    assert_eq!(hear(&mut signals).await.text.as_str(), "hello");

    // Unknown to the world, for another name, and without TLS on a port that speaks it.
    assert!(refused(&url).await.ends_with("no secure connection"));
    refused(&named.replace("localhost", "127.0.0.1")).await;
    let unavailable = async |url: String| {
        let error = RedisBackend::open(&url, &Namespace::default()).await.expect_err("unavailable");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", chain(&error));
        error.to_string()
    };
    unavailable(format!("redis://127.0.0.1:{}", server.tls_port())).await;
    // With TLS on a port that does not speak it, the server waits for the rest of the command.
    let secure = format!("rediss://localhost:{}?ca={}", server.port(), tls.authority.display());
    assert!(unavailable(secure).await.contains("does it speak TLS there?"));
}

const HISTORY: &str = "{tenure}:history/all";

/// The least rights that the backend needs.
const RULE: &str = "on >PASSWORD resetkeys ~{tenure}:* resetchannels &{tenure}:* -@all \
    +evalsha +eval +info +time +ping +publish +subscribe +unsubscribe +exists +del +hget +hmget +hset \
    +zadd +zrem +zcard +zrangebylex +zrevrangebylex +xadd +xdel +xlen +xrange +xrevrange";

fn with_rights(rule: &str) -> (Redis, String) {
    let server = Options::new().start();
    let mut words = vec!["ACL", "SETUSER", "tenure"];
    words.extend(rule.split_whitespace());
    assert_eq!(server.command(&words).text(), "OK");
    // As many entries as the history keeps, so that the next one removes the oldest.
    let fill =
        "for _ = 1, 10000 do redis.call('XADD', KEYS[1], '*', 'resource', 'z', 'at', '1', 'text', 'x') end";
    server.command(&["EVAL", fill, "1", HISTORY]);
    let url = format!("redis://tenure:PASSWORD@127.0.0.1:{}", server.port());
    (server, url)
}

async fn use_everything(backend: &RedisBackend) -> Result<(), Error> {
    let (subscriptions, mut signals) = backend.listen().await?;
    subscriptions.follow(Channel::new("c")).await?;
    let life = backend.read(&[Key::Meta]).await?.life;
    let mut created = Change { essential: true, ..creation(resource("a"), "a") };
    created.history.push(entry("a", "granted"));
    created.signals.push(signal(&["c"], "hello"));
    let mut deletion = change(resource("a"), created.put[0].version, "");
    deletion.put[0].value = None;
    deletion.history.push(entry("a", "released"));
    for change in [created, deletion] {
        assert!(matches!(backend.commit(life, &[change]).await?.done[0], Committed::Done { .. }));
    }
    hear(&mut signals).await;
    subscriptions.forget(&Channel::new("c"));
    backend.list(Listing::Leases, None).await?;
    backend.history(None, 10).await?;
    assert_eq!(backend.history(Some(&name("a")), 10).await?.entries.len(), 2);
    backend.lost_nothing(Duration::ZERO).await?;
    backend.safety().await.map(drop)
}

#[tokio::test]
async fn with_the_least_rights_everything_works() {
    let (server, url) = with_rights(RULE);
    let backend = open(&url).await;

    use_everything(&backend).await.unwrap_or_else(|error| panic!("{}", chain(&error)));

    until(|| server.command(&["PUBSUB", "CHANNELS"]) == Reply::List(Vec::new())).await;
    assert_eq!(server.command(&["ACL", "LOG"]), Reply::List(Vec::new()));
    assert_eq!(server.command(&["XLEN", HISTORY]), Reply::Number(10_000));
}

#[tokio::test]
async fn without_any_of_them_something_is_refused_and_no_record_is_half_written() {
    let rights = RULE.split_whitespace().filter_map(|right| right.strip_prefix('+'));
    // Checked above, or never refused by itself: PING only tests a silent connection.
    for right in rights.filter(|right| !["ping", "unsubscribe"].contains(right)) {
        let (server, url) = with_rights(&format!("{RULE} -{right}"));
        let told = match RedisBackend::open(&url, &Namespace::default()).await {
            Ok(backend) => use_everything(&backend).await.expect_err(right),
            Err(error) => error,
        };
        assert_eq!(told.kind(), ErrorKind::Refused, "{right}: {}", chain(&told));
        assert!(told.to_string().contains("docs/stores.md has the ACL rule"), "{right}: {told}");
        assert!(!chain(&told).contains("PASSWORD"), "{right}");
        if let Reply::Text(version) = server.command(&["HGET", "{tenure}:resource/a", "version"]) {
            assert_eq!(version.len(), 16, "{right}");
            assert_eq!(server.command(&["ZCARD", "{tenure}:names/resource"]), Reply::Number(1), "{right}");
        }
    }
}

#[tokio::test]
async fn another_namespace_is_out_of_reach() {
    let (_server, url) = with_rights(RULE);
    let elsewhere = Namespace::new("other").expect("a namespace");

    let error = RedisBackend::open(&url, &elsewhere).await.expect_err("no rights there");

    assert_eq!(error.kind(), ErrorKind::Refused, "{}", chain(&error));
    assert!(error.to_string().contains("docs/stores.md has the ACL rule"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_never_shown() {
    let (server, url) = with_rights(RULE);
    server.command(&["ACL", "SETUSER", "default", "resetpass", ">other"]);

    for (url, why) in
        [(url.replace("PASSWORD", "secret"), "wrong user or password"), (server.url(), "needs a password")]
    {
        let error = RedisBackend::open(&url, &Namespace::default()).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Refused, "{}", chain(&error));
        assert!(error.to_string().contains(why), "{error}");
        assert!(!chain(&error).contains("secret"), "{}", chain(&error));
    }
}
