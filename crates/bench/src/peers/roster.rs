//! Who is measured: Tenure on each store, and its peers. One line each says what there is to know of them.

use std::time::Duration;

/// Where the lease, the lock or the key lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Store {
    File,
    Redis,
    Postgres,
    Etcd,
    ZooKeeper,
}

/// What kind of program its candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// This one, under its hidden subcommand.
    Bench(&'static str),
    /// The crate in `peers/rust`.
    Rust(&'static str),
    /// A file in `peers/python`.
    Python(&'static str),
    /// A file in `peers/node`.
    Node(&'static str),
}

/// What a program asks that wants to know whether it still owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// A call that looks at a clock.
    Deadline,
    /// A call that asks the server each time.
    Server,
    /// A flag that whoever renews keeps.
    Flag,
    /// Nothing.
    None,
}

impl Check {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Deadline => "looks at a deadline",
            Self::Server => "asks the server",
            Self::Flag => "a flag",
            Self::None => "no check",
        }
    }
}

/// One row of the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// For `--only`, files and programs.
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) store: Store,
    pub(super) program: Program,
    pub(super) check: Check,
    /// Where it cannot be set.
    pub(super) fixed_ttl: Option<Duration>,
    /// Whether one process can own, or wait for, many.
    pub(super) is_many: bool,
    /// Whether an ownership ends by itself when nobody renews it.
    pub(super) has_lease: bool,
}

impl Peer {
    const fn new(id: &'static str, name: &'static str, store: Store, program: Program, check: Check) -> Self {
        Self { id, name, store, program, check, fixed_ttl: None, is_many: true, has_lease: true }
    }

    /// A command: a process for each campaign.
    const fn command(self) -> Self {
        Self { is_many: false, ..self }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.id.starts_with("tenure")
    }

    pub(super) fn ttl(&self, wanted: Duration) -> Duration {
        self.fixed_ttl.unwrap_or(wanted)
    }
}

/// In the order of the report.
pub(super) const ALL: [Peer; 15] = {
    use Check::{Deadline, Flag, None, Server};
    use Program::{Bench, Node, Python, Rust};
    use Store::{Etcd, File, Postgres, Redis, ZooKeeper};
    [
        Peer::new("tenure-sqlite", "Tenure on SQLite", File, Bench("tenure"), Deadline),
        Peer::new("tenure-redis", "Tenure on Redis", Redis, Bench("tenure"), Deadline),
        Peer::new("tenure-postgres", "Tenure on PostgreSQL", Postgres, Bench("tenure"), Deadline),
        Peer::new("tenure-run-sqlite", "`tenure run` on SQLite", File, Bench("run"), None).command(),
        Peer::new("tenure-run-redis", "`tenure run` on Redis", Redis, Bench("run"), None).command(),
        Peer::new("tenure-run-postgres", "`tenure run` on PostgreSQL", Postgres, Bench("run"), None)
            .command(),
        Peer::new("rslock", "rslock", Redis, Rust("rslock"), Server),
        Peer::new("redis-py", "redis-py Lock", Redis, Python("redis_py.py"), Server),
        Peer::new("redlock", "redlock (npm)", Redis, Node("redlock.cjs"), Flag),
        Peer::new("redis-lease", "Redis lease by hand", Redis, Bench("lease"), Flag),
        Peer::new("heartbeat-table", "heartbeat table by hand", Postgres, Bench("table"), Flag),
        Peer {
            has_lease: false,
            ..Peer::new("pg-advisory", "advisory lock by hand", Postgres, Bench("advisory"), Flag)
        },
        Peer::new("etcd-client", "etcd-client `campaign`", Etcd, Rust("etcd"), Flag),
        Peer {
            fixed_ttl: Some(Duration::from_secs(60)),
            ..Peer::new("etcdctl", "`etcdctl elect`", Etcd, Bench("etcdctl"), None).command()
        },
        Peer::new("kazoo", "kazoo Election", ZooKeeper, Python("zookeeper.py"), Flag),
    ]
};
