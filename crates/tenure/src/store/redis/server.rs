//! What a server tells about itself with INFO: whether it can be used, what its configuration costs, and whether it can
//! show that it lost no data.

use std::time::Duration;

use redis::Value;

use super::error::Failure;
use crate::Error;
use crate::store::{Impact, Warning};

/// The oldest version whose commands and scripts do what ours need.
const OLDEST: (u32, u32) = (6, 2);

/// Commands after which data may be gone. Before 7.0 all subcommands of CONFIG were counted as one.
const LOSING_COMMANDS: [&str; 8] =
    ["flushall", "flushdb", "swapdb", "replicaof", "slaveof", "failover", "config|resetstat", "config"];

/// INFO counts whole seconds.
const UPTIME_ROUNDING: Duration = Duration::from_secs(2);

/// A reply to INFO.
pub(super) struct Info(String);

impl Info {
    pub(super) fn parse(reply: Value) -> Result<Self, Failure> {
        let text = redis::from_redis_value(reply).map_err(|_| Failure::Unexpected("INFO is not text"))?;
        Ok(Self(text))
    }

    fn field(&self, name: &str) -> &str {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let value = value.unwrap_or_default().trim();
        // Longer than any value that matters: it may be told in an error.
        value.get(..60).unwrap_or(value)
    }

    /// Whether the server can be used.
    pub(super) fn check(&self, server: &str) -> Result<(), Error> {
        let refused = |why: String| Err(Error::refused(format!("cannot use `{server}`: {why}")));
        let version = self.field("redis_version");
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST {
            let (major, minor) = OLDEST;
            return refused(format!("it is Redis {version:?}; Tenure needs {major}.{minor} or newer"));
        }
        if self.field("role") != "master" {
            return refused("it is a replica; use the address of its primary".to_owned());
        }
        if self.may_evict() {
            let policy = self.field("maxmemory_policy");
            return refused(format!(
                "its maxmemory-policy is {policy:?}, which may evict records; set it to noeviction or volatile-lru"
            ));
        }
        Ok(())
    }

    /// Whether it may evict keys without a TTL, such as ours.
    pub(super) fn may_evict(&self) -> bool {
        self.field("maxmemory_policy").starts_with("allkeys")
    }

    /// What the configuration takes away from the promises.
    pub(super) fn concerns(&self) -> Vec<Warning> {
        let mut concerns = Vec::new();
        if self.field("aof_enabled") != "1" {
            concerns.push(Warning {
                cost: Impact::Record,
                what: "the server has no append-only file, so a restart forgets all leases and what jobs have done: \
                       every owner stops, nothing is granted for one longest ttl, and work that ran once may run again"
                    .to_owned(),
                hint: "set appendonly yes".to_owned(),
            });
        }
        let replicas = self.field("connected_slaves").parse().unwrap_or(0);
        if replicas > 0 {
            let replicas =
                if replicas == 1 { "1 replica".to_owned() } else { format!("{replicas} replicas") };
            concerns.push(Warning {
                cost: Impact::Exclusion,
                what: format!(
                    "the server has {replicas} that follow asynchronously: a failover may forget the newest grants"
                ),
                hint: "check the fencing token with every write, or use a server without failover".to_owned(),
            });
        }
        if self.may_evict() {
            let policy = self.field("maxmemory_policy");
            concerns.push(Warning {
                cost: Impact::Exclusion,
                what: format!("the maxmemory-policy was changed to {policy:?}: owners may be forgotten"),
                hint: "set maxmemory-policy noeviction".to_owned(),
            });
        }
        concerns
    }

    /// Whether the server can show that no data was lost in the last `within`, given that none of ours is there. Needs
    /// the default sections and `commandstats`.
    pub(super) fn lost_nothing(&self, within: Duration) -> bool {
        let uptime = Duration::from_secs(self.field("uptime_in_seconds").parse().unwrap_or(0));
        let called = |command: &str| {
            let calls = self.field(&format!("cmdstat_{command}"));
            !calls.is_empty() && !calls.starts_with("calls=0,")
        };
        self.field("role") == "master"
            && uptime >= within + UPTIME_ROUNDING
            && self.field("evicted_keys") == "0"
            // A node of a cluster may get a slot or be promoted without any command.
            && self.field("cluster_enabled") == "0"
            && !LOSING_COMMANDS.into_iter().any(called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n\
        aof_enabled:1\r\nconnected_slaves:0\r\ncluster_enabled:0\r\nuptime_in_seconds:17\r\nevicted_keys:0\r\n\
        cmdstat_config|get:calls=3,usec=1\r\ncmdstat_flushall:calls=0,usec=0\r\n";

    fn info(from: &str, to: &str) -> Info {
        assert!(GOOD.contains(from), "{from}");
        Info(GOOD.replace(from, to))
    }

    #[test]
    fn a_good_server_is_used_without_concerns() {
        for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
            let info = info("noeviction", policy);
            assert!(info.check("redis://there").is_ok());
            assert_eq!(info.concerns(), []);
        }
    }

    #[test]
    fn a_bad_server_is_refused_with_the_reason() {
        for (from, to, why) in [
            ("7.0.15", "6.0.16", "it is Redis \"6.0.16\""),
            ("7.0.15", "x", "it is Redis \"x\""),
            ("role:master", "role:slave", "it is a replica"),
            ("noeviction", "allkeys-lfu", "its maxmemory-policy is \"allkeys-lfu\""),
        ] {
            let error = info(from, to).check("redis://there").expect_err("refused").to_string();
            assert!(error.starts_with("cannot use `redis://there`: ") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn concerns_name_what_the_configuration_costs() {
        for (from, to, cost, what) in [
            ("aof_enabled:1", "aof_enabled:0", Impact::Record, "no append-only file"),
            ("slaves:0", "slaves:1", Impact::Exclusion, "has 1 replica that"),
            ("slaves:0", "slaves:2", Impact::Exclusion, "has 2 replicas that"),
            ("noeviction", "allkeys-lru", Impact::Exclusion, "was changed to \"allkeys-lru\""),
        ] {
            let concerns = info(from, to).concerns();
            assert_eq!(concerns.len(), 1, "{concerns:?}");
            assert!(concerns[0].cost == cost && concerns[0].what.contains(what), "{concerns:?}");
        }
    }

    #[test]
    fn only_a_server_that_shows_it_lost_nothing_is_believed() {
        let within = Duration::from_secs(15);
        assert!(info("x", "x").lost_nothing(within));
        assert!(!info("x", "x").lost_nothing(within + Duration::from_secs(1)));

        for (from, to) in [
            ("role:master", "role:slave"),
            ("uptime_in_seconds:17", "uptime_in_seconds:16"),
            ("uptime_in_seconds:17", ""),
            ("evicted_keys:0", "evicted_keys:1"),
            ("cluster_enabled:0", "cluster_enabled:1"),
            ("flushall:calls=0", "flushall:calls=1"),
            ("flushall:calls=0", "swapdb:calls=10"),
            ("config|get", "config|resetstat"),
            ("config|get", "config"),
        ] {
            assert!(!info(from, to).lost_nothing(within), "{from} -> {to}");
        }
    }
}
