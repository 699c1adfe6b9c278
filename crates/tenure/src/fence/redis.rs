//! Writes to Redis that are refused once a later owner has written: one script, so that nothing comes in between.
//!
//! ```no_run
//! # async fn pay(own: tenure::Ownership, mut connection: redis::aio::MultiplexedConnection)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let guard = tenure::fence::redis::Guard::new(&own.fence());
//! guard.set(&mut connection, "balance:7", 1200).await?;
//! guard.hset(&mut connection, "order:9", "state", "paid").await?;
//! # Ok(()) }
//! ```
//!
//! Where nothing but the owner is to write, let nothing write past the guard; Redis itself does not know of tokens.

use redis::aio::ConnectionLike;
use redis::{FromRedisValue, RedisError, Script, ToRedisArgs};

use super::{Fence, Refusal, Stale};

/// What the script says when the token is stale.
const STALE: &str = "TENURESTALE";

/// Writes under one ownership.
#[derive(Clone, Debug)]
pub struct Guard {
    fence: Fence,
    mark: String,
}

impl Guard {
    /// Writes that carry this fence. The mark is kept in a key of its own, `tenure-fence:{RESOURCE}:TICKET`.
    #[must_use]
    pub fn new(fence: &Fence) -> Self {
        Self::tagged(fence, fence.resource().as_str())
    }

    /// The same for Redis Cluster, where a script touches one slot only: the mark goes to that of `{tag}`, where the keys
    /// that are written have to be, too. Each tag has marks of its own.
    #[must_use]
    pub fn tagged(fence: &Fence, tag: &str) -> Self {
        let mark = format!("tenure-fence:{{{tag}}}:{}:{}", fence.resource(), fence.ticket());
        Self { fence: fence.clone(), mark }
    }

    /// The key that holds the newest token.
    #[must_use]
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// `SET key value`.
    ///
    /// # Errors
    /// [`Refusal::Stale`] when a later owner has written.
    // req: T4
    pub async fn set(
        &self,
        connection: &mut impl ConnectionLike,
        key: &str,
        value: impl ToRedisArgs,
    ) -> Result<(), Refusal<RedisError>> {
        self.eval(connection, "return redis.call('SET', KEYS[1], ARGV[1])", &[key], value).await
    }

    /// `HSET key field value`.
    ///
    /// # Errors
    /// [`Refusal::Stale`] when a later owner has written.
    pub async fn hset(
        &self,
        connection: &mut impl ConnectionLike,
        key: &str,
        field: impl ToRedisArgs,
        value: impl ToRedisArgs,
    ) -> Result<(), Refusal<RedisError>> {
        let said: Result<i64, _> = self
            .eval(connection, "return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])", &[key], (field, value))
            .await;
        said.map(drop)
    }

    /// A script of the caller's own, with its `KEYS` and `ARGV`. Nothing of it is run when the token is stale.
    ///
    /// # Errors
    /// [`Refusal::Stale`] when a later owner has written.
    pub async fn eval<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        script: &str,
        keys: &[&str],
        args: impl ToRedisArgs,
    ) -> Result<T, Refusal<RedisError>> {
        let guarded = Script::new(&format!(
            "{}return (function(KEYS, ARGV)\n{script}\nend)(keys, args)\n",
            include_str!("guard.lua")
        ));
        let mut invocation = guarded.key(self.mark.as_str());
        for key in keys {
            invocation.key(*key);
        }
        invocation.arg(self.fence.token()).arg(args);
        invocation.invoke_async(connection).await.map_err(|error| self.refusal(error))
    }

    fn refusal(&self, error: RedisError) -> Refusal<RedisError> {
        let newest = match error.code() {
            Some(STALE) => error.detail().and_then(|detail| detail.trim().parse().ok()),
            _ => None,
        };
        newest.map_or(Refusal::Failed(error), |newest| Refusal::Stale(Stale::new(&self.fence, newest)))
    }
}
