//! What a server says of itself: whether it can be used at all, and what its configuration costs.

use super::trouble::{Outcome, Trouble};
use crate::Error;
use crate::store::{Concern, Cost};

/// The oldest server whose scripts can do what ours need.
const OLDEST: (u32, u32) = (6, 2);

/// More than any value that matters has: what is longer is told by its beginning.
const LONGEST: usize = 60;

/// The parts of INFO that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    version: String,
    role: String,
    policy: String,
    aof: bool,
    replicas: u32,
    cluster: bool,
}

impl Server {
    pub(super) fn said(info: redis::Value) -> Outcome<Self> {
        let text: String = redis::from_redis_value(info).map_err(|error| Trouble::Odd(error.to_string()))?;
        Ok(Self::of(&text))
    }

    pub(super) fn of(info: &str) -> Self {
        let field = |name: &str| {
            let mut lines = info.lines();
            lines
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or_default()
                .trim()
                .chars()
                .take(LONGEST)
                .collect::<String>()
        };
        Self {
            version: field("redis_version"),
            role: field("role"),
            policy: field("maxmemory_policy"),
            aof: field("aof_enabled") == "1",
            replicas: field("connected_slaves").parse().unwrap_or(0),
            cluster: field("cluster_enabled") == "1",
        }
    }

    /// Whether it can be used.
    pub(super) fn check(&self, place: &str) -> Result<(), Error> {
        let refused = |why: String| Err(Error::refused(format!("cannot use `{place}`: {why}")));
        let mut parts = self.version.split('.').map(|part| part.parse().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if version < OLDEST {
            let (major, minor) = OLDEST;
            return refused(format!(
                "it is Redis {:?}, and the oldest that can be used is {major}.{minor}",
                self.version
            ));
        }
        if self.role != "master" {
            return refused("it is a replica; use the address of its primary".to_owned());
        }
        if self.may_forget() {
            return refused(format!(
                "its maxmemory-policy is {:?}, under which it may drop who owns what; set it to noeviction",
                self.policy
            ));
        }
        Ok(())
    }

    /// Whether it may drop who owns what, when it runs out of memory.
    pub(super) fn may_forget(&self) -> bool {
        self.policy != "noeviction"
    }

    /// What its configuration takes away from the promises.
    pub(super) fn concerns(&self) -> Vec<Concern> {
        let mut concerns = Vec::new();
        if !self.aof {
            concerns.push(Concern {
                cost: Cost::Record,
                what: "the server keeps no append-only file, so a restart forgets all leases and what jobs have done: \
                       every owner stops, nothing is granted for one ttl, and what was done once may be done again"
                    .to_owned(),
                hint: "set appendonly yes".to_owned(),
            });
        }
        if self.replicas > 0 {
            let whole = if self.cluster { "cluster that promotes one" } else { "failover to one of them" };
            let replicas =
                if self.replicas == 1 { "1 replica" } else { &format!("{} replicas", self.replicas) };
            concerns.push(Concern {
                cost: Cost::Exclusion,
                what: format!(
                    "the server has {replicas}, which follow asynchronously: a {whole} may forget the newest grants"
                ),
                hint: "let the token fence every write, or use a server without failover".to_owned(),
            });
        }
        if self.may_forget() {
            concerns.push(Concern {
                cost: Cost::Exclusion,
                what: format!(
                    "the maxmemory-policy was changed to {:?}: owners may be forgotten",
                    self.policy
                ),
                hint: "set maxmemory-policy noeviction".to_owned(),
            });
        }
        concerns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n\
        aof_enabled:1\r\nconnected_slaves:0\r\ncluster_enabled:0\r\n";

    fn refused(info: &str) -> String {
        Server::of(info).check("redis://there").expect_err("it is refused").to_string()
    }

    #[test]
    fn a_good_server_is_used_without_concerns() {
        assert!(Server::of(GOOD).check("redis://there").is_ok());
        assert_eq!(Server::of(GOOD).concerns(), []);
        assert!(Server::of(&GOOD.replace("7.0.15", "6.2.0")).check("redis://there").is_ok());
        assert!(Server::of(&GOOD.replace("7.0.15", "10.0")).check("redis://there").is_ok());
    }

    #[test]
    fn an_old_one_a_replica_and_one_that_drops_keys_are_refused_with_a_sentence() {
        assert_eq!(
            refused(&GOOD.replace("7.0.15", "6.0.16")),
            "cannot use `redis://there`: it is Redis \"6.0.16\", and the oldest that can be used is 6.2"
        );
        assert!(refused(&GOOD.replace("master", "slave")).contains("it is a replica"));
        assert!(refused(&GOOD.replace("noeviction", "allkeys-lru")).contains("set it to noeviction"));
        assert!(refused("").contains("it is Redis \"\""));
        assert!(refused(&GOOD.replace("noeviction", &"noeviction".repeat(1000))).len() < 300);
    }

    #[test]
    fn no_file_costs_time_and_replicas_cost_exclusion() {
        let costs =
            |info: &str| Server::of(info).concerns().iter().map(|concern| concern.cost).collect::<Vec<_>>();

        assert_eq!(costs(&GOOD.replace("aof_enabled:1", "aof_enabled:0")), [Cost::Record]);
        assert_eq!(costs(&GOOD.replace("slaves:0", "slaves:2")), [Cost::Exclusion]);
    }
}
