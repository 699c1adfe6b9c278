//! `tenure schema`: the SQL that makes the tables and functions of a namespace, for those who apply it themselves.

use clap::ValueEnum;
use tenure::store::{Namespace, PostgresStore};

use crate::exit::{Exit, Failure};
use crate::output;

pub(crate) const ABOUT: &str = "\
Prints the SQL that makes the tables and functions of a namespace, for those who do not let workers make them. Whoever \
applies it owns them; the role of the workers then needs nothing but USAGE on the schema and EXECUTE on the functions that \
they call, and can neither read nor write a table. Without --role these grants stand at the end as a comment.";

pub(crate) const AFTER: &str = "\
Examples:
  tenure schema postgres --role worker | psql -v ON_ERROR_STOP=1 -d app
  tenure schema postgres --namespace billing > migrations/0042_tenure.sql";

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Schema {
    /// For which store
    #[arg(value_enum, value_name = "STORE")]
    kind: Kind,

    /// The namespace, which is the name of the schema: 1 to 40 of a-z 0-9 _ -, not beginning with pg_
    #[arg(long, default_value = "tenure")]
    namespace: String,

    /// Grant what a worker needs, and no more, to this role, which has to be there: 1 to 63 bytes
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Postgres,
}

pub(crate) fn print(typed: &Schema) -> Result<Exit, Failure> {
    let namespace = Namespace::new(&typed.namespace)?;
    let script = match typed.kind {
        Kind::Postgres => PostgresStore::schema(&namespace)?,
    };
    let script = match &typed.role {
        None => script,
        Some(role) => granted(&script, &quoted(role)?)?,
    };
    output::data(&script).map(|()| Exit::OK)
}

/// A name as SQL has it, whatever it holds.
fn quoted(role: &str) -> Result<String, Failure> {
    // What is longer PostgreSQL would cut, and grant to another.
    if !(1..=63).contains(&role.len()) || role.chars().any(char::is_control) {
        return Err(Failure::new(format!("role {role:?} is not 1 to 63 bytes without control characters")));
    }
    Ok(format!("\"{}\"", role.replace('"', "\"\"")))
}

/// The same script with the grants that stand at its end as a comment: made, and in its transaction, so that all of it
/// is applied or nothing.
fn granted(script: &str, role: &str) -> Result<String, Failure> {
    let without_list = || Failure::new("the script does not list at its end what a worker needs");
    let (made, listed) = script.rsplit_once("COMMIT;\n").ok_or_else(without_list)?;
    let (head, grants) = listed.trim_start().split_once('\n').ok_or_else(without_list)?;
    let grants: Vec<&str> = grants.lines().filter_map(|line| line.strip_prefix("-- ")).collect();
    let grants = grants.join("\n").replace("TO worker;", &format!("TO {role};"));
    if grants.matches(&format!("TO {role};")).count() < 2 {
        return Err(without_list());
    }
    Ok(format!("{made}{head}\n{grants}\n\nCOMMIT;\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> String {
        PostgresStore::schema(&Namespace::default()).expect("a script")
    }

    #[test]
    fn the_grants_are_made_to_the_role_before_all_of_it_is_committed() {
        let granted = granted(&script(), "\"few\"").expect("grants");

        let (before, after) = granted.rsplit_once("COMMIT;").expect("a transaction");
        assert!(
            before.contains("\nGRANT USAGE ON SCHEMA \"tenure\" TO \"few\";\nGRANT EXECUTE ON FUNCTION\n")
        );
        assert!(!before.contains("TO worker") && after == "\n");
    }

    #[test]
    fn a_script_without_the_list_is_not_taken_for_one_that_grants_nothing() {
        let cut = script().replace("-- GRANT", "-- ").replace("TO worker", "");

        assert!(granted(&cut, "\"few\"").is_err());
    }

    #[test]
    fn whatever_the_role_is_called_stays_a_name() {
        assert_eq!(quoted("a\"; DROP ROLE b; --").expect("a name"), "\"a\"\"; DROP ROLE b; --\"");
        for wrong in ["", "a\nb", &"x".repeat(64)] {
            assert!(quoted(wrong).is_err(), "{wrong:?}");
        }
    }
}
