//! `tenure schema`: the SQL that creates the tables and functions of a namespace.

use tenure::store::PostgresStore;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::settings;

pub(crate) fn schema(settings: &settings::Schema) -> Result<Exit, Failure> {
    let script = match &settings.role {
        Some(role) => PostgresStore::schema_for_role(&settings.namespace, role)?,
        None => PostgresStore::schema(&settings.namespace)?,
    };
    output::data(&script).map(|()| Exit::OK)
}
