//! PostgreSQL: a private server, which dies with this process. What it counts itself stands in `pg_stat_statements` and
//! `pg_stat_user_tables`.

use std::time::{Duration, Instant};

use tenure::store::{Namespace, PostgresStore};
use testkit::postgres::{Options, Postgres};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, Statement};

use super::Baseline;
use crate::{Failure, usage};

/// On a port of its own, with its data in a folder of its own, durable as the defaults have it.
#[derive(Debug)]
pub(super) struct Server {
    /// Asks for what the server counts. Over one connection, so that no process of the server comes and goes for it.
    onlooker: Link,
    postgres: Postgres,
}

impl Server {
    pub(super) fn start() -> Result<Self, Failure> {
        let postgres = Options::new().set("shared_preload_libraries", "pg_stat_statements").start();
        postgres.sql("CREATE EXTENSION pg_stat_statements");
        Ok(Self { onlooker: Link::to(&postgres.url())?, postgres })
    }

    pub(super) fn url(&self) -> String {
        self.postgres.url()
    }

    pub(super) fn make(&self, namespace: &str) -> Result<(), Failure> {
        make(&self.postgres, namespace)
    }

    pub(super) fn update(&self, name: &str) -> Result<Update, Failure> {
        self.postgres.sql(&format!(
            "CREATE TABLE \"baseline-{name}\" (id integer PRIMARY KEY, number bigint NOT NULL) WITH (fillfactor = 50);
             INSERT INTO \"baseline-{name}\" VALUES (1, 0)"
        ));
        let link = Link::to(&self.url())?;
        let sql = format!("UPDATE \"baseline-{name}\" SET number = number + 1 WHERE id = 1");
        let statement = link.runtime.block_on(link.client.prepare(&sql))?;
        Ok(Update { link, statement })
    }

    /// Of all its processes, those that have ended with them.
    pub(super) fn cpu(&self) -> Result<Duration, Failure> {
        let pids = self.postgres.pids();
        let mut spent = usage::of_reaped_children(pids[0])?;
        // One that ends just now is gone before it is looked at.
        spent += pids.into_iter().filter_map(|pid| usage::on_cpu(pid).ok()).sum::<Duration>();
        Ok(spent)
    }

    /// What autovacuum would do within the next minute, whatever is measured then.
    pub(super) fn clear_up(&self, namespace: &str) -> Result<Duration, Failure> {
        self.postgres.sql("ALTER SYSTEM SET autovacuum = off");
        self.postgres.sql("SELECT pg_reload_conf()");
        let tables = self.postgres.sql(&format!(
            "SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables
             WHERE schemaname = '{namespace}'"
        ));
        let before = self.cpu()?;
        self.postgres.sql(&format!("VACUUM (ANALYZE) {tables}"));
        Ok(self.cpu()?.saturating_sub(before))
    }

    pub(super) fn lets_itself_clear_up(&self) {
        self.postgres.sql("ALTER SYSTEM RESET autovacuum");
        self.postgres.sql("SELECT pg_reload_conf()");
    }

    /// How many statements have called a function of the namespace.
    pub(super) fn calls(&self, namespace: &str) -> Result<u64, Failure> {
        let [all] = self.onlooker.numbers(&format!(
            "SELECT coalesce(sum(calls), 0)::bigint
             FROM pg_stat_statements WHERE position('\"{namespace}\".' IN query) > 0"
        ))?;
        Ok(all)
    }

    /// What renewals left behind in the table of records.
    pub(super) fn leftovers(&self, namespace: &str) -> Result<Leftovers, Failure> {
        let [live, dead, updates, in_place, bytes] = self.onlooker.numbers(&format!(
            "SELECT n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd, pg_relation_size(relid)
             FROM pg_stat_user_tables WHERE schemaname = '{namespace}' AND relname = 'record'"
        ))?;
        Ok(Leftovers { live, dead, updates, in_place, bytes })
    }
}

/// Makes the tables of a namespace, without a quarantine: nobody can have owned anything there before.
pub(crate) fn make(server: &Postgres, namespace: &str) -> Result<(), Failure> {
    server.sql(&PostgresStore::schema(&Namespace::new(namespace)?)?);
    server.sql(&format!(
        "INSERT INTO \"{namespace}\".record (key, version, stamp, value)
         SELECT 'meta', 1, \"{namespace}\".clock(), json_build_object('format', 1, 'rev', 1, 'longest_us', 0, 'floor', 0,
             'life', encode(\"{namespace}\".life(), 'hex'), 'secret', replace(gen_random_uuid()::text, '-', ''))::text"
    ));
    Ok(())
}

/// The table of records, by the server's own statistics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leftovers {
    pub(crate) live: u64,
    /// Versions of rows that nobody sees any more, and that are not cleared yet.
    pub(crate) dead: u64,
    pub(crate) updates: u64,
    /// Those of them that stayed in their page, and left the indexes alone.
    pub(crate) in_place: u64,
    pub(crate) bytes: u64,
}

/// A connection of its own, for one thread that waits for each answer.
#[derive(Debug)]
struct Link {
    client: Client,
    runtime: Runtime,
}

impl Link {
    fn to(url: &str) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (client, connection) = runtime.block_on(tokio_postgres::connect(url, NoTls))?;
        // Ends with the runtime; what goes wrong there is told to who waits for an answer.
        runtime.spawn(connection);
        Ok(Self { client, runtime })
    }

    /// The numbers in the one row that this gives.
    fn numbers<const N: usize>(&self, sql: &str) -> Result<[u64; N], Failure> {
        let row = self.runtime.block_on(self.client.query_one(sql, &[]))?;
        let mut numbers = [0; N];
        for (index, number) in numbers.iter_mut().enumerate() {
            *number = u64::try_from(row.try_get::<_, i64>(index)?)?;
        }
        Ok(numbers)
    }
}

/// One update of one row by its key, prepared, committed as the server's defaults have it.
pub(super) struct Update {
    link: Link,
    statement: Statement,
}

impl Baseline for Update {
    fn name(&self) -> &'static str {
        "committed UPDATE"
    }

    fn once(&mut self) -> Result<Duration, Failure> {
        let began = Instant::now();
        let updated = self.link.runtime.block_on(self.link.client.execute(&self.statement, &[]))?;
        let took = began.elapsed();
        if updated == 1 { Ok(took) } else { Err(format!("an update of one row changed {updated}").into()) }
    }
}
