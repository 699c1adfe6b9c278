//! The schema of a namespace: created by the first worker that comes, or from the script that `tenure schema` prints.

use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tenure_core::Namespace;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connection::Connection;
use super::error::Failure;
use super::url::Target;
use crate::Error;
use crate::store::open::Missing;

/// Grows with every change of the tables or functions. Builds before the first release had 1 to 9.
const VERSION: i32 = 10;
/// Stand for what several functions have in common.
const SHARED: [(&str, &str); 2] = [
    ("@definer@", "SECURITY DEFINER SET search_path = pg_catalog, @schema@, pg_temp"),
    // Plans that are made once, and find every row by an index also when the table was small at that time.
    (
        "@planned@",
        "SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
    SET enable_mergejoin = off SET jit = off",
    ),
];
/// What a role that only reads calls.
const READER: [&str; 7] = ["version", "read", "list", "history", "settings", "listen", "unlisten"];
/// What a worker calls besides.
const WORKER: [&str; 1] = ["commit"];
/// The oldest server on which the functions work.
const OLDEST_SERVER: i32 = 130_000;
/// How long opening may take when many workers open the store at once.
const OPENS_WITHIN: Duration = Duration::from_secs(30);

/// The quoted name of a schema: the only name that becomes part of a statement.
#[derive(Clone, Debug)]
pub(super) struct Quoted(String);

impl Quoted {
    pub(super) fn of(namespace: &Namespace) -> Result<Self, Error> {
        let name = namespace.as_str();
        // The type promises that already; but a mistake would hurt here.
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if !is_plain || ["public", "information_schema"].contains(&name) {
            return Err(Error::refused(format!(
                "namespace {name:?} cannot be the name of a schema in PostgreSQL"
            )));
        }
        Ok(Self(format!("\"{name}\"")))
    }

    /// The number of the advisory lock under which the schema is created.
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

/// The statements that create the schema.
fn body(schema: &Quoted) -> String {
    let text = concat!(include_str!("schema.sql"), "\n", include_str!("functions.sql"));
    let text = SHARED.iter().fold(text.to_owned(), |text, (name, meaning)| text.replace(name, meaning));
    text.replace("@version@", &VERSION.to_string()).replace("@schema@", &schema.0)
}

/// The same as a script for people. The grants that a worker needs are made to `role`, in the same transaction; without
/// one they stand at the end as a comment.
pub(super) fn script(schema: &Quoted, role: Option<&str>) -> Result<String, Error> {
    const NEEDED: &str = "-- What a worker's role needs, and all that it needs:\n";
    let readers: Vec<String> = READER.iter().map(|name| format!("{schema}.{name}")).collect();
    let created = format!(
        "-- Tenure's tables and functions in the schema {schema}, version {VERSION}. Apply it as their owner; applying it \
         again\n-- changes nothing.\n\n\
         BEGIN;\nSET LOCAL search_path = pg_catalog;\nSELECT pg_advisory_xact_lock({});\n\n{}\n\
         -- A role that only reads needs USAGE on the schema and EXECUTE on the functions\n--     {}.\n",
        schema.lock(),
        body(schema),
        readers.join(",\n--     "),
    );
    Ok(match role {
        Some(role) => format!("{created}{NEEDED}{}\nCOMMIT;\n", grants(schema, &quoted_role(role)?)),
        None => {
            let grants = grants(schema, "worker");
            let comment: String = grants.lines().map(|line| format!("-- {line}\n")).collect();
            format!("{created}COMMIT;\n\n{NEEDED}{comment}")
        }
    })
}

/// All that a worker's role needs, and nothing else.
fn grants(schema: &Quoted, role: &str) -> String {
    let called: Vec<String> =
        READER.iter().chain(&WORKER).map(|name| format!("    {schema}.{name}")).collect();
    let called = called.join(",\n");
    format!("GRANT USAGE ON SCHEMA {schema} TO {role};\nGRANT EXECUTE ON FUNCTION\n{called}\nTO {role};\n")
}

/// The name of a role as a quoted SQL identifier.
fn quoted_role(role: &str) -> Result<String, Error> {
    // PostgreSQL would cut a longer name, and grant to another role.
    if !(1..=63).contains(&role.len()) || role.chars().any(char::is_control) {
        return Err(Error::refused(format!("role {role:?} is not 1 to 63 bytes without control characters")));
    }
    Ok(format!("\"{}\"", role.replace('"', "\"\"")))
}

/// Sees that the schema is there in our version, and creates it if asked to. Gives back the connection that was made
/// for this, or nothing if there is no schema.
pub(super) async fn prepare(
    target: &Target,
    schema: &Quoted,
    missing: Missing,
) -> Result<Option<Connection>, Error> {
    let prepared = tokio::time::timeout(OPENS_WITHIN, try_prepare(target, schema, missing)).await;
    let late = || Error::unavailable(format!("cannot open {target}: no answer within {OPENS_WITHIN:?}"));
    prepared.map_err(|_| late())?.map_err(|failure| failure.told("open the store", target))
}

async fn try_prepare(
    target: &Target,
    schema: &Quoted,
    missing: Missing,
) -> Result<Option<Connection>, Failure> {
    let connection = Connection::open(target).await?;
    let client = &connection.client;
    // Both at once; what is wrong with the server is told first.
    let (server, exists) = tokio::join!(check_server(client, target), exists(client, target, schema));
    if server.and(exists)? {
        return Ok(Some(connection));
    }
    match missing {
        Missing::Leave => Ok(None),
        Missing::Create => create(client, target, schema).await.map(|()| Some(connection)),
    }
}

async fn check_server(client: &Client, target: &Target) -> Result<(), Failure> {
    let sql = "SELECT pg_is_in_recovery(), current_setting('server_encoding'),
        current_setting('server_version_num')::integer, current_setting('transaction_isolation')";
    let rows = client.query_typed(sql, &[]).await?;
    let row = rows.first().ok_or_else(|| Failure::corrupt("no row"))?;
    let (encoding, isolation): (&str, &str) = (row.try_get(1)?, row.try_get(3)?);
    let why = if row.try_get(0)? {
        "it is a standby, which cannot be written to; name the primary, or all hosts".to_owned()
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

/// Whether the schema is there in our version; another version is refused. Needs only the right to call `version`.
async fn exists(client: &Client, target: &Target, schema: &Quoted) -> Result<bool, Failure> {
    let asked = client.query_typed(&format!("SELECT {schema}.version()"), &[]).await;
    let rows = match asked.map_err(Failure::from) {
        Ok(rows) => rows,
        Err(failure) => {
            return match failure.code() {
                Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION) => Ok(false),
                Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Err(no_right(target, schema, "use").into()),
                _ => Err(failure),
            };
        }
    };
    let row = rows.first().ok_or_else(|| Failure::corrupt("no row"))?;
    let why = match row.try_get::<_, Option<i32>>(0)? {
        Some(VERSION) => return Ok(true),
        Some(newer) if newer > VERSION => {
            format!("it has version {newer}, and this program needs {VERSION}; use a newer program")
        }
        Some(older) => format!(
            "it has version {older}, and this program needs {VERSION}; it holds data of an earlier build. Stop all workers \
             and run DROP SCHEMA {schema} CASCADE, or choose another namespace; the schema is then created anew"
        ),
        None => return Err(Failure::corrupt(format!("the schema {schema} has no version"))),
    };
    Err(Error::refused(format!("cannot use the schema {schema} at {target}: {why}")).into())
}

/// Creates the schema. If many try at once, one does it and the others find it done. If it fails, closing the
/// connection undoes it.
async fn create(client: &Client, target: &Target, schema: &Quoted) -> Result<(), Failure> {
    client.batch_execute("BEGIN; SET LOCAL lock_timeout = '20s'; SET LOCAL search_path = pg_catalog").await?;
    client.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&schema.lock(), Type::INT8)]).await?;
    let sql = "SELECT to_regproc($1 || '.version') IS NOT NULL";
    let rows = client.query_typed(sql, &[(&schema.0, Type::TEXT)]).await?;
    let is_created: bool = rows.first().ok_or_else(|| Failure::corrupt("no row"))?.try_get(0)?;
    if !is_created {
        client.batch_execute(&body(schema)).await.map_err(|error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => no_right(target, schema, "create").into(),
            _ => Failure::from(error),
        })?;
    } else if !exists(client, target, schema).await? {
        return Err(Failure::corrupt(format!("the schema {schema} has no version")));
    }
    Ok(client.batch_execute("COMMIT").await?)
}

fn no_right(target: &Target, schema: &Quoted, to: &str) -> Error {
    Error::refused(format!(
        "no right to {to} the schema {schema} at {target}: let its owner apply `tenure schema postgres`, and grant what \
         is listed at its end"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let namespace = Namespace::new("s").expect("a namespace");
        body(&Quoted::of(&namespace).expect("a schema"))
    }

    #[test]
    fn what_is_called_runs_with_its_owners_rights_and_a_fixed_search_path() {
        let text = text();
        let mut definers = Vec::new();
        for function in text.split("CREATE OR REPLACE FUNCTION \"s\".").skip(1) {
            let head = function.split("AS $$").next().expect("a head");
            if head.contains("SECURITY DEFINER") {
                assert!(head.contains("SET search_path = pg_catalog, \"s\", pg_temp"), "{head}");
                definers.push(head.split('(').next().expect("a name"));
            }
        }
        definers.sort_unstable();
        let mut called = [&READER[..], &WORKER[..]].concat();
        called.sort_unstable();
        assert_eq!(definers, called);
        assert!(!text.contains('@'), "a placeholder is left");
    }

    #[test]
    fn no_function_reads_the_time_when_the_transaction_began() {
        let code: String = text().lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
        for past in
            ["now()", "current_timestamp", "transaction_timestamp", "statement_timestamp", "localtime"]
        {
            assert!(!code.to_lowercase().contains(past), "{past}");
        }
    }

    #[test]
    fn schemas_that_belong_to_others_are_refused() {
        for name in ["public", "information_schema"] {
            let namespace = Namespace::new(name).expect("a namespace");
            assert!(Quoted::of(&namespace).is_err(), "{name}");
        }
    }

    #[test]
    fn grants_are_made_to_the_role_before_all_of_it_is_committed() {
        let schema = Quoted::of(&Namespace::default()).expect("a schema");

        let script = script(&schema, Some("few")).expect("a script");

        let (before, after) = script.rsplit_once("COMMIT;").expect("a transaction");
        assert!(
            before.contains("\nGRANT USAGE ON SCHEMA \"tenure\" TO \"few\";\nGRANT EXECUTE ON FUNCTION\n")
        );
        assert!(!before.contains("TO worker") && after == "\n");
    }

    #[test]
    fn whatever_the_role_is_called_stays_a_name() {
        assert_eq!(quoted_role("a\"; DROP ROLE b; --").expect("a name"), "\"a\"\"; DROP ROLE b; --\"");
        for wrong in ["", "a\nb", &"x".repeat(64)] {
            assert!(quoted_role(wrong).is_err(), "{wrong:?}");
        }
    }
}
