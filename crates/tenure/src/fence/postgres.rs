//! Writes to PostgreSQL that are refused once a later owner has written: in the caller's own transactions.
//!
//! [`SCHEMA`] adds a table and a function, once, in the database that is written to. Then every transaction that writes
//! under an ownership begins with [`check`], or in any other language with `SELECT tenure_fence($1, $2, $3)`:
//!
//! ```no_run
//! # async fn pay(own: tenure::Ownership, client: &mut tokio_postgres::Client)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let transaction = client.transaction().await?;
//! tenure::fence::postgres::check(&transaction, &own.fence()).await?;
//! transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
//! transaction.commit().await?;
//! # Ok(()) }
//! ```
//!
//! Rows that only owners write can carry the token themselves, without table and function. A row then knows its own
//! last writer, and a later owner that has not come to it yet does not protect it:
//!
//! ```sql
//! UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2 -- no row: stale
//! ```

use tokio_postgres::{Client, Error, Transaction};

use super::{Fence, Refusal, Stale};

/// The table `tenure_fences` and the function `tenure_fence`. Whoever writes needs `SELECT`, `INSERT` and `UPDATE` on the
/// one. To be run once; again does no harm.
pub const SCHEMA: &str = include_str!("fence.sql");

/// What the function raises when the token is stale.
const STALE: &str = "TN409";

/// Runs [`SCHEMA`].
///
/// # Errors
/// When the server does not let it.
pub async fn install(client: &Client) -> Result<(), Error> {
    client.batch_execute(SCHEMA).await
}

/// Lets the transaction go on, and none of an earlier owner of the same ticket after it. Call it before the first
/// write; a transaction of the next owner waits for the end of this one.
///
/// # Errors
/// [`Refusal::Stale`] when a later owner has written. The transaction has failed then: roll it back, or drop it.
// req: T4
pub async fn check(transaction: &Transaction<'_>, fence: &Fence) -> Result<(), Refusal<Error>> {
    let failed = |error: Error| {
        let newest = error.as_db_error().and_then(|error| match error.code().code() {
            STALE => error.detail()?.parse().ok(),
            _ => None,
        });
        newest.map_or(Refusal::Failed(error), |newest| Refusal::Stale(Stale::new(fence, newest)))
    };
    // Both fit: a fence is checked when it is made.
    let (ticket, token) = (fence.ticket().cast_signed(), fence.token().cast_signed());
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&fence.resource().as_str(), &ticket, &token];
    transaction.execute("SELECT tenure_fence($1, $2, $3)", &params).await.map(drop).map_err(failed)
}
