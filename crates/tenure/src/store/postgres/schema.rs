//! The schema of a namespace: made once, by whoever comes first, and only ever made newer.

use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tenure_core::Namespace;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::line::Wire;
use super::trouble::Trouble;
use super::url::Target;
use crate::Error;

/// Grows with every change of the tables or functions.
const VERSION: i32 = 9;
/// What is made, in this order.
const PARTS: [&str; 6] = [
    include_str!("tables.sql"),
    include_str!("leases.sql"),
    include_str!("seats.sql"),
    include_str!("tickets.sql"),
    include_str!("jobs.sql"),
    include_str!("tools.sql"),
];
/// What the heads of functions have in common, by the names that stand for it.
const HEADS: [(&str, &str); 11] = [
    // What every request of a worker is answered with.
    (
        "@answer@",
        "OUT verdict smallint, OUT now_us bigint, OUT shown_us bigint, OUT longest_ns bigint, OUT incarnation text,
    OUT numbers bigint[], OUT names text[]",
    ),
    // What every operation begins with. Waits for no lock longer than `patience` milliseconds, and never answers before the
    // disk has it: when one process of a server crashes, the others forget what the disk has not, and it is the same life.
    // A text, and not a function: a call would take as long as all of it.
    (
        "@ready@",
        "CASE WHEN pg_is_in_recovery() OR current_setting('transaction_isolation') <> 'read committed' THEN refuse()
        ELSE set_config('lock_timeout', patience::text, true) IS NOT NULL AND (current_setting('synchronous_commit') <> 'off'
            OR set_config('synchronous_commit', 'on', true) IS NOT NULL) END",
    ),
    // The store as it is, and where a request keeps it. A life that was not seen yet is not answered with.
    (
        "@store@",
        "m.life = life(m.tableoid) AND m.longest_ns >= heard, m.system || '-' || m.life, m.longest_ns, m.quarantine_from",
    ),
    ("@store_of_c@", "c.seen, c.incarnation, c.longest_ns, c.quarantine_from"),
    // The end of the year 2199, in microseconds.
    ("@last_us@", "7258118399999999"),
    // What every step of a job is answered with.
    ("@step@", "said integer, through bigint, replaced text, @record@"),
    // A run, as it is told, and as it is read.
    (
        "@record@",
        "occurrence bigint, attempt bigint, token bigint, key_token bigint, worker text,
    began_at bigint, state integer, took_us bigint, missed bigint, skipped bigint, note text",
    ),
    (
        "@run@",
        "occurrence, attempt, token, key_token, worker, began_at, state::integer, took_us, missed, skipped, note",
    ),
    // What changes something: by plans that are made once, and find every row by an index.
    (
        "@changes@",
        "LANGUAGE plpgsql VOLATILE @owners@
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off",
    ),
    // What people read: by a plan for what they ask.
    (
        "@reads@",
        "LANGUAGE plpgsql STABLE @owners@
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET jit = off",
    ),
    // With the rights of the one who made it, and nobody else's names.
    ("@owners@", "SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp"),
];
/// What a worker calls; everything else is for these.
const CALLED: [&str; 20] = [
    "version", "see", "open", "renew", "held", "close", "claim", "release", "flush", "attend", "begin",
    "finish", "jobs", "publish", "channel", "ask", "evict", "look", "past", "setup",
];
/// The oldest that the functions work on.
const OLDEST_SERVER: i32 = 130_000;
/// How long opening takes at most, with many who do the same at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// The name of a schema, quoted: the one thing that is part of a statement.
#[derive(Clone, Debug)]
pub(super) struct Quoted(String);

impl Quoted {
    pub(super) fn of(namespace: &Namespace) -> Result<Self, Error> {
        let name = namespace.as_str();
        // Only letters, digits, `_` and `-`, as the type promises; but this is where it would hurt.
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if !is_plain || ["public", "information_schema"].contains(&name) {
            return Err(Error::refused(format!(
                "namespace {name:?} cannot be a schema of its own in PostgreSQL"
            )));
        }
        Ok(Self(format!("\"{name}\"")))
    }

    /// The number of the advisory lock under which it is made.
    fn lock(&self) -> i64 {
        let hash = Sha256::digest(format!("tenure schema {self}").as_bytes());
        hash.iter().take(8).fold(0, |number, byte| number << 8 | i64::from(*byte))
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All that makes the schema, but for the schema itself.
fn body(schema: &Quoted) -> String {
    let text = PARTS.join("\n");
    let text = HEADS.iter().fold(text, |text, (name, head)| text.replace(name, head));
    text.replace("@version@", &VERSION.to_string()).replace("@schema@", &schema.0)
}

/// The same as a script for people.
pub(super) fn script(schema: &Quoted) -> String {
    let called: Vec<String> = CALLED.iter().map(|name| format!("{schema}.{name}")).collect();
    format!(
        "-- Tenure's tables and functions in the schema {schema}, version {VERSION}. Apply it once, as their owner.\n\n\
         BEGIN;\nSET LOCAL search_path = pg_catalog;\nCREATE SCHEMA {schema};\n\n{}\nCOMMIT;\n\n\
         -- What a worker's role needs, and all that it needs:\n\
         -- GRANT USAGE ON SCHEMA {schema} TO worker;\n\
         -- GRANT EXECUTE ON FUNCTION\n--     {}\n-- TO worker;\n",
        body(schema),
        called.join(",\n--     "),
    )
}

/// What is done about a schema that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Leave,
}

/// Looks whether the schema is there, in our version, and if it is to be made sees to it. If it is there then, this
/// is the connection that was made for it.
pub(super) async fn prepare(
    target: &Target,
    schema: &Quoted,
    missing: Missing,
) -> Result<Option<Wire>, Error> {
    let prepared = tokio::time::timeout(PATIENCE, try_prepare(target, schema, missing)).await;
    let late = || Error::unavailable(format!("cannot open {target}: no answer within {PATIENCE:?}"));
    prepared.map_err(|_| late())?.map_err(|trouble| trouble.told("open the store", target))
}

async fn try_prepare(target: &Target, schema: &Quoted, missing: Missing) -> Result<Option<Wire>, Trouble> {
    let wire = Wire::make(target, PATIENCE).await?;
    let client = wire.client();
    // Both at once; what is wrong with the server is told first.
    let (server, is_there) = tokio::join!(check_server(client, target), is_there(client, target, schema));
    let is_there = server.and(is_there)?;
    if !is_there && missing == Missing::Make {
        make(client, target, schema).await?;
    }
    Ok((is_there || missing == Missing::Make).then_some(wire))
}

async fn check_server(client: &Client, target: &Target) -> Result<(), Trouble> {
    let sql = "SELECT pg_is_in_recovery(), current_setting('server_encoding'),
        current_setting('server_version_num')::integer, current_setting('transaction_isolation')";
    let row = first(client.query_typed(sql, &[]).await?)?;
    let (encoding, isolation): (&str, &str) = (row.try_get(1)?, row.try_get(3)?);
    let why = if row.try_get(0)? {
        "it is a standby, and nothing can be written there; name the primary, or all hosts".to_owned()
    } else if encoding != "UTF8" {
        format!("the encoding of the database is {encoding}, and has to be UTF8")
    } else if row.try_get::<_, i32>(2)? < OLDEST_SERVER {
        "the server is older than PostgreSQL 13".to_owned()
    } else if isolation != "read committed" {
        format!(
            "transactions are {isolation} there, and have to be read committed; \
             set default_transaction_isolation for the role"
        )
    } else {
        return Ok(());
    };
    Err(Error::refused(format!("cannot use {target}: {why}")).into())
}

/// Whether the functions are there in our version; newer ones are refused. Needs no rights but to call them.
async fn is_there(client: &Client, target: &Target, schema: &Quoted) -> Result<bool, Trouble> {
    let asked = client.query_typed(&format!("SELECT {schema}.version()"), &[]).await;
    let row = match asked.map_err(Trouble::from) {
        Ok(rows) => first(rows)?,
        Err(trouble) => {
            return match trouble.code() {
                Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION) => Ok(false),
                Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Err(no_right(target, schema, "use").into()),
                _ => Err(trouble),
            };
        }
    };
    check_version(&row, target, schema)?;
    Ok(true)
}

fn check_version(row: &Row, target: &Target, schema: &Quoted) -> Result<(), Trouble> {
    match row.try_get::<_, Option<i32>>(0)? {
        Some(version) if version == VERSION => Ok(()),
        Some(version) if version > VERSION => Err(Error::refused(format!(
            "cannot use the schema {schema} at {target}: it has version {version}, and this program knows \
             {VERSION}; use a newer program"
        ))
        .into()),
        // None of these was ever released, so there is no way from there.
        Some(version @ 1..VERSION) => Err(Error::refused(format!(
            "cannot use the schema {schema} at {target}: it has version {version}, from before the first release, and \
             this program knows {VERSION}; stop all workers and drop the schema, and it is made anew"
        ))
        .into()),
        version => Err(Trouble::damaged(format!("version {version:?} of the schema {schema}"))),
    }
}

/// Makes it. Of many who try at once one does, and the others find it done. What fails is undone with the connection.
async fn make(client: &Client, target: &Target, schema: &Quoted) -> Result<(), Trouble> {
    client.batch_execute("BEGIN; SET LOCAL lock_timeout = '20s'; SET LOCAL search_path = pg_catalog").await?;
    client.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&schema.lock(), Type::INT8)]).await?;
    match try_make(client, target, schema).await {
        Ok(()) => Ok(client.batch_execute("COMMIT").await?),
        Err(trouble) if trouble.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            Err(no_right(target, schema, "make").into())
        }
        Err(trouble) => Err(trouble),
    }
}

async fn try_make(client: &Client, target: &Target, schema: &Quoted) -> Result<(), Trouble> {
    let sql = "SELECT to_regnamespace($1) IS NOT NULL, to_regproc($1 || '.version') IS NOT NULL,
        EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace($1))
        OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace($1))";
    let row = first(client.query_typed(sql, &[(&schema.0, Type::TEXT)]).await?)?;
    let (exists, is_made, is_in_use): (bool, bool, bool) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if is_made {
        // By somebody who may have been of another version.
        let rows = client.query_typed(&format!("SELECT {schema}.version()"), &[]).await?;
        return check_version(&first(rows)?, target, schema);
    }
    if is_in_use {
        return Err(Error::refused(format!(
            "cannot make the schema {schema} at {target}: it is there, with what is not ours; choose another namespace"
        ))
        .into());
    }
    if !exists {
        client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    Ok(client.batch_execute(&body(schema)).await?)
}

fn no_right(target: &Target, schema: &Quoted, to: &str) -> Error {
    Error::refused(format!(
        "no right to {to} the schema {schema} at {target}: let its owner apply `tenure schema postgres`, and grant what \
         it lists at its end"
    ))
}

fn first(rows: Vec<Row>) -> Result<Row, Trouble> {
    rows.into_iter().next().ok_or_else(|| Trouble::damaged("nothing was answered"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_that_runs_with_its_owners_rights_has_a_fixed_search_path_and_is_listed() {
        let namespace = Namespace::new("s").expect("a namespace");
        let text = body(&Quoted::of(&namespace).expect("a schema"));
        let mut definers = Vec::new();
        for function in text.split("CREATE FUNCTION \"s\".").skip(1) {
            let head = function.split("AS $$").next().expect("a head");
            if head.contains("SECURITY DEFINER") {
                assert!(head.contains("SET search_path = pg_catalog, \"s\", pg_temp"), "{head}");
                definers.push(head.split('(').next().expect("a name"));
            }
        }
        definers.sort_unstable();
        let mut called = CALLED;
        called.sort_unstable();
        assert_eq!(definers, called);
    }

    #[test]
    fn no_statement_reads_the_time_of_the_transactions_begin() {
        let code: String =
            PARTS.concat().lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
        for past in
            ["now()", "current_timestamp", "transaction_timestamp", "statement_timestamp", "localtime"]
        {
            assert!(!code.to_lowercase().contains(past), "{past}");
        }
    }

    #[test]
    fn other_peoples_schemas_are_refused() {
        for name in ["public", "information_schema"] {
            let namespace = Namespace::new(name).expect("a namespace");
            assert!(Quoted::of(&namespace).is_err(), "{name}");
        }
    }
}
