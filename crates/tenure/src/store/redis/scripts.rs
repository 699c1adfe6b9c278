//! The operations, as the server runs them: one script each, put together from files of their own.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::trouble::Outcome;
use super::wire::Wire;

/// One operation.
pub(super) struct Script {
    code: &'static str,
    hash: String,
    /// Whether somebody waits to be woken by it.
    wakes: bool,
    /// How many of the keys it takes.
    pub(super) keys: usize,
}

macro_rules! scripts {
    ($($name:ident: $($file:literal)* $(, wakes: $wakes:literal)?;)+) => {
        $(
            pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
                let code = concat!(
                    include_str!("head.lua"),
                    include_str!("prelude.lua"),
                    "return (function()\n",
                    $(include_str!(concat!($file, ".lua")),)*
                    "end)()\n",
                );
                Script::of(code, false $(|| $wakes)?)
            });
        )+
    };
}

// All begin with the head, but for the short ones below. What follows the prelude is a function within it: Lua then finds what that takes from the prelude by its number, and not by a walk over
// all variables between, which with every run took as long as fifteen commands.
scripts! {
    OPEN: "open";
    RENEW: "renew";
    HELD: "held";
    CLAIM: "tickets" "claims" "claim";
    RELEASE: "tickets" "claims" "release", wakes: true;
    CLOSE: "tickets" "close", wakes: true;
    ASK: "tickets" "wishes" "ask";
    EVICT: "tickets" "wishes" "evict", wakes: true;
    READ: "tickets" "names" "read";
    PAST: "tickets" "names" "history";
    ATTEND: "tickets" "holder" "jobs" "attend";
    BEGIN: "tickets" "holder" "jobs" "begin";
    FINISH: "tickets" "holder" "jobs" "finish";
    LIST: "tickets" "holder" "jobs" "list";
    PUBLISH: "tickets" "holder" "publish";
}

/// The usual release and the usual claim, by themselves.
pub(super) static SHORT_RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::of(include_str!("short_release.lua"), true));
pub(super) static SHORT_CLAIM: LazyLock<Script> =
    LazyLock::new(|| Script::of(include_str!("short_claim.lua"), false));

/// What the keys of a namespace are called, in the order in which the scripts take them.
const KEYS: [&str; 13] = [
    "state", "queue", "held", "history", "leases", "names", "ended", "gone", "newest", "notices", "metadata",
    "jobs", "runs",
];

/// The keys of a namespace. The hash tag keeps them in one slot of a cluster.
pub(super) fn keys(namespace: &str) -> Vec<String> {
    KEYS.iter().map(|key| format!("{{{namespace}}}:{key}")).collect()
}

impl Script {
    fn of(code: &'static str, wakes: bool) -> Self {
        let hash = redis::Script::new(code).get_hash().to_owned();
        let takes = |count: &usize| code.contains(&format!("KEYS[{count}]"));
        Self { code, hash, wakes, keys: (0..=KEYS.len()).rev().find(takes).unwrap_or(0) }
    }

    fn command(&self, verb: &str, script: &[u8], keys: &[String], words: &[Vec<u8>]) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for word in words {
            command.arg(word.as_slice());
        }
        command
    }
}

/// What is asked of a server.
pub(super) enum Question<'a> {
    /// What it says of itself.
    Info,
    /// To run an operation.
    Run { script: &'a Script, keys: &'a [String], words: &'a [Vec<u8>] },
}

impl Question<'_> {
    /// Asks it. A script is run by its hash, or whole where the server does not know it yet, after a restart or SCRIPT
    /// FLUSH; either way at most once.
    pub(super) async fn put(&self, wire: &Wire) -> Outcome<Value> {
        let (script, keys, words) = match self {
            Question::Info => return wire.ask(&redis::cmd("INFO")).await,
            Question::Run { script, keys, words } => (script, keys, words),
        };
        let by_hash = script.command("EVALSHA", script.hash.as_bytes(), keys, words);
        let said = if script.wakes { wire.ask_as_last(&by_hash).await } else { wire.ask(&by_hash).await };
        match said {
            Err(trouble) if trouble.is_unknown_script() => {
                wire.ask(&script.command("EVAL", script.code.as_bytes(), keys, words)).await
            }
            said => said,
        }
    }
}
