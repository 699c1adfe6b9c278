//! `redis://`, `rediss://`, `redis+unix://`: records in a Redis server, from 6.2 on; Valkey speaks the same protocol.
//!
//! A record is a hash of its own. Each operation is one script, which Redis runs alone and as a whole, on the primary
//! and with the server's clock. All keys and channels begin with `{NAMESPACE}:`, so that they lie in one slot of a
//! cluster. The life of the server is its replication id: Redis draws a new one with every start, with or without its
//! data, and whenever a server becomes the primary. Data that vanishes within a life (FLUSHALL) takes `meta` with it.

mod connection;
mod error;
#[cfg(test)]
mod fuzz;
mod listener;
mod scripts;
mod server;
mod url;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, Value, from_redis_value};
use tenure_core::{Capabilities, Incarnation, Key, Namespace, ResourceName, StoreTime, Version};

use self::connection::Connections;
use self::error::Failure;
use self::listener::Listener;
use self::scripts::{COMMIT, Call, HISTORY, INFO, NAMES, READ, Script};
use self::server::Info;
use self::url::Url;
use super::backend::{
    Backend, Change, Commits, Committed, History, Listing, Page, Signals, Snapshot, Stored, Subscriptions,
    Text,
};
use super::codec::{key_name, key_of};
use super::open::Kind;
use super::{Pending, RecordStore, Store, Warning};
use crate::Error;
use crate::runtime::events::{self, StoreChange};

/// How a Redis server is opened by its URL. Looking makes nothing in it.
pub(super) const KIND: Kind = Kind {
    schemes: &["redis", "rediss", "redis+unix", "unix"],
    open: |url, namespace, _| {
        Box::pin(async move {
            let store = RedisStore::open(&url, &namespace).await?;
            Ok(Some(Arc::new(store) as Arc<dyn Store>))
        })
    },
};

/// How long opening may take.
const OPENS_WITHIN: Duration = Duration::from_secs(5);
/// How many records a page of a listing has, and how many entries of the history are read at once. Redis serves nobody
/// else meanwhile.
const PAGE: usize = 250;
/// A key that every namespace of earlier builds has.
const EARLIER: &str = "state";

/// A namespace of a Redis server.
///
/// Its connections live in the runtime of the requests that made them.
pub struct RedisBackend {
    connections: Connections,
    namespace: Namespace,
    /// `{NAMESPACE}:`, which all keys and channels begin with.
    prefix: String,
    /// The life that the last reply showed.
    life: Mutex<Option<Incarnation>>,
}

/// What every script answers with: the server's clock, its life, and the rest.
struct Reply<T> {
    now: StoreTime,
    life: Incarnation,
    rest: T,
}

/// Version, stamp and value, as the scripts give them.
type Fields = (Option<String>, Option<String>, Option<String>);

impl RedisBackend {
    /// Connects to the server at `url`, and checks that it can be used. Logs what its configuration costs.
    ///
    /// # Errors
    /// `Refused` for an invalid URL, a server older than 6.2, a replica, a `maxmemory-policy` that evicts keys without
    /// a TTL, a wrong password, missing rights and a certificate that cannot be verified. `Unavailable` when the server
    /// does not answer.
    pub async fn open(url: &str, namespace: &Namespace) -> Result<Self, Error> {
        let backend = Self {
            connections: Connections::new(Url::parse(url)?),
            namespace: namespace.clone(),
            prefix: format!("{{{namespace}}}:"),
            life: Mutex::default(),
        };
        // Shows that scripts may run, and where the keys are.
        let checked =
            tokio::time::timeout(OPENS_WITHIN, backend.info()).await.unwrap_or(Err(Failure::TimedOut));
        let (_, info) = checked.map_err(|failure| backend.describe("open", failure))?;
        for warning in info.concerns() {
            events::store(StoreChange::Warned(warning));
        }
        Ok(backend)
    }

    fn describe(&self, doing: &str, failure: Failure) -> Error {
        failure.describe(doing, &self.connections.server())
    }

    fn key(&self, name: impl fmt::Display) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The keys that are no records: the names of leases and of resources, the history, and the history by resource.
    fn common_keys(&self) -> Vec<String> {
        ["names/lease", "names/resource", "history/all", "history/names"].map(|name| self.key(name)).to_vec()
    }

    async fn run<T: FromRedisValue>(
        &self,
        script: &'static Script,
        keys: &[String],
        arguments: &[Cow<'_, str>],
    ) -> Result<Reply<T>, Failure> {
        let reply = self.connections.run(&Call { script, keys, arguments }).await?;
        let (now, life, rest): (u64, String, Value) = parse(reply, "a malformed script reply")?;
        let life =
            u128::from_str_radix(&life, 16).map_err(|_| Failure::Unexpected("an invalid master_replid"))?;
        let (now, life) = (StoreTime::from_micros(now), Incarnation(life));
        let before = self.life.lock().unwrap_or_else(PoisonError::into_inner).replace(life);
        if before.is_some_and(|before| before != life) {
            // Other connections may still lead to the server of the life before.
            self.connections.replace_all();
        }
        Ok(Reply { now, life, rest: parse(rest, "a malformed script reply")? })
    }

    async fn read_records(&self, keys: &[Key]) -> Result<Snapshot, Failure> {
        let names: Vec<String> = keys.iter().map(|key| self.key(key_name(key))).collect();
        let reply: Reply<Vec<Fields>> = self.run(&READ, &names, &[]).await?;
        if reply.rest.len() != keys.len() {
            return Err(Failure::Unexpected("not one record for each key"));
        }
        let records = keys.iter().zip(reply.rest).map(|(key, fields)| stored(key.clone(), fields));
        Ok(Snapshot {
            life: reply.life,
            now: Some(reply.now),
            wall: Some(reply.now.as_micros()),
            records: records.collect(),
        })
    }

    async fn commit_changes(&self, within: Incarnation, changes: &[Change]) -> Result<Commits, Failure> {
        let mut arguments = Arguments::new(self.common_keys());
        let essential = changes.iter().any(|change| change.essential);
        arguments.push(format!("{:032x}", within.0));
        arguments.push(if essential { "1" } else { "0" });
        arguments.push(tenure_core::HISTORY.to_string());
        for change in changes {
            arguments.change(change, &self.prefix);
        }
        let reply: Reply<Vec<Value>> = self.run(&COMMIT, &arguments.keys, &arguments.words).await?;
        let (life, now) = (reply.life, Some(reply.now));
        if life != within {
            return Ok(Commits { life, now, done: vec![Committed::Conflict(Vec::new()); changes.len()] });
        }
        if reply.rest.len() != changes.len() {
            return Err(Failure::Unexpected("not one result for each change"));
        }
        let committed = |result| match result {
            Value::Int(1) => Ok(Committed::Done { stamp: now }),
            differing => {
                let differing: Vec<(usize, Fields)> = parse(differing, "not the records that differ")?;
                let records =
                    differing.into_iter().map(|(index, fields)| Ok(stored(arguments.key(index)?, fields)));
                records.collect::<Result<_, Failure>>().map(Committed::Conflict)
            }
        };
        Ok(Commits { life, now, done: reply.rest.into_iter().map(committed).collect::<Result<_, _>>()? })
    }

    async fn list_page(&self, of: Listing, after: Option<&Key>) -> Result<Page, Failure> {
        let kind = match of {
            Listing::Leases => "lease",
            Listing::Resources => "resource",
        };
        let list = [self.key(format_args!("names/{kind}"))];
        let name = |key: &Key| key_name(key).split_once('/').map(|(_, name)| name.to_owned());
        let mut after = after.and_then(name);
        loop {
            let from = after.as_ref().map_or("-".to_owned(), |after| format!("({after}"));
            let arguments = [from.into(), PAGE.to_string().into()];
            let names: Vec<String> = self.run(&NAMES, &list, &arguments).await?.rest;
            let key = |name: &String| key_of(&format!("{kind}/{name}"));
            let keys: Option<Vec<Key>> = names.iter().map(key).collect();
            let keys = keys.ok_or(Failure::Unexpected("an unknown record name"))?;
            let mut shown = self.read_records(&keys).await?;
            // Some may have been deleted between the two requests.
            shown.records.retain(|record| record.version != Version::NONE);
            let more = names.len() == PAGE;
            if !more || !shown.records.is_empty() {
                return Ok(Page { shown, more });
            }
            after = names.into_iter().next_back();
        }
    }

    async fn read_history(&self, of: Option<&ResourceName>, most: usize) -> Result<History, Failure> {
        let resource = of.map_or("", ResourceName::as_str);
        let keys = &self.common_keys()[2..];
        let (mut before, mut entries) = (String::new(), Vec::new());
        loop {
            let count = (most - entries.len()).min(PAGE);
            let arguments = [resource.into(), before.as_str().into(), count.to_string().into()];
            let reply: Reply<Vec<(String, u64, String)>> = self.run(&HISTORY, keys, &arguments).await?;
            let found = reply.rest.len();
            for (id, at, text) in reply.rest {
                entries.push((Some(StoreTime::from_micros(at)), Text::from(text)));
                before = id;
            }
            if found < count || entries.len() == most {
                entries.reverse();
                return Ok(History { now: Some(reply.now), entries });
            }
        }
    }

    /// How many keys of the namespace exist, of those whose names are known, and what the server tells about itself.
    /// The record of the namespace is not counted: it is there when somebody asks whether anything was lost.
    async fn info(&self) -> Result<(usize, Info), Failure> {
        let mut keys = vec![self.key(EARLIER)];
        keys.extend(self.common_keys());
        keys.push(self.key(key_name(&Key::Ttls)));
        let (earlier, existing, info): (bool, usize, Value) = self.run(&INFO, &keys, &[]).await?.rest;
        if earlier {
            return Err(Failure::Other(Error::refused(format!(
                "cannot use `{}`: an earlier build of Tenure has data there, in `{}`; stop all workers and delete the keys \
                 `{}*`, or choose another namespace",
                self.connections.server(),
                keys[0],
                self.prefix
            ))));
        }
        Ok((existing, Info::parse(info)?))
    }

    async fn start_listener(&self) -> Result<(Arc<dyn Subscriptions>, Signals), Failure> {
        let (connection, replaced) = self.connections.subscribe().await?;
        let (prefix, server) = (self.prefix.clone(), self.connections.server());
        let (listener, signals) = Listener::start(connection.split(), replaced, prefix, server);
        Ok((Arc::new(listener), signals))
    }
}

/// What a commit tells the script.
struct Arguments<'a> {
    /// The common keys, then those of `records`.
    keys: Vec<String>,
    records: Vec<&'a Key>,
    /// The index of each record in `keys`, counted from 1 as Lua does.
    indexes: HashMap<&'a Key, usize>,
    words: Vec<Cow<'a, str>>,
}

impl<'a> Arguments<'a> {
    fn new(common: Vec<String>) -> Self {
        Self { keys: common, records: Vec::new(), indexes: HashMap::new(), words: Vec::new() }
    }

    /// The record with this index.
    fn key(&self, index: usize) -> Result<Key, Failure> {
        let common = self.keys.len() - self.records.len();
        let key = index.checked_sub(common + 1).and_then(|index| self.records.get(index));
        key.map(|key| (*key).clone()).ok_or(Failure::Unexpected("a record that was not expected"))
    }

    fn push(&mut self, word: impl Into<Cow<'a, str>>) {
        self.words.push(word.into());
    }

    fn record(&mut self, key: &'a Key, prefix: &str) {
        let index = *self.indexes.entry(key).or_insert_with(|| {
            self.keys.push(format!("{prefix}{}", key_name(key)));
            self.records.push(key);
            self.keys.len()
        });
        self.push(index.to_string());
    }

    fn time(&mut self, time: Option<StoreTime>) {
        self.push(time.map_or(String::new(), |time| time.as_micros().to_string()));
    }

    fn change(&mut self, change: &'a Change, prefix: &str) {
        self.time(change.window.from);
        self.time(change.window.until);
        self.push(change.expect.len().to_string());
        for (key, version) in &change.expect {
            self.record(key, prefix);
            self.push(written(*version));
        }
        self.push(change.put.len().to_string());
        for put in &change.put {
            self.record(&put.key, prefix);
            self.push(put.value.as_ref().map_or(String::new(), |_| written(put.version)));
            self.push(put.value.as_ref().map_or("", Text::as_str));
            let exists =
                change.expect.iter().any(|(key, version)| *key == put.key && *version != Version::NONE);
            let (list, name) = match &put.key {
                // Its name is there, and stays.
                _ if exists && put.value.is_some() => ("", String::new()),
                Key::Lease(lease) => ("1", format!("{:032x}", lease.0)),
                Key::Resource(name) => ("2", name.to_string()),
                _ => ("", String::new()),
            };
            self.push(list);
            self.push(name);
        }
        self.push(change.history.len().to_string());
        for entry in &change.history {
            self.push(entry.resource.as_str());
            self.time(entry.at);
            self.push(entry.text.as_str());
        }
        self.push(change.signals.len().to_string());
        for signal in &change.signals {
            self.push(signal.text.as_str());
            let channels = signal.to.iter().map(|channel| format!("{prefix}{}", channel.as_str()));
            self.push(channels.collect::<Vec<_>>().join(" "));
        }
    }
}

/// As hexadecimal text, because Lua's numbers are exact only up to 2^53. Nothing for a record that does not exist.
fn written(version: Version) -> String {
    if version == Version::NONE { String::new() } else { format!("{:016x}", version.0) }
}

/// One that is damaged has a text that nobody can read: it costs those nothing that were read with it.
fn stored(key: Key, (version, stamp, value): Fields) -> Stored {
    let version = version.map(|version| u64::from_str_radix(&version, 16).map(Version));
    let stamp = stamp.map(|stamp| stamp.parse().map(StoreTime::from_micros));
    match (version, stamp, value) {
        (None, None, None) => Stored::absent(key),
        (Some(Ok(version)), Some(Ok(stamp)), Some(value)) => {
            Stored { key, version, stamp: Some(stamp), value: Some(value.into()) }
        }
        _ => Stored { key, version: Version(1), stamp: None, value: Some("".into()) },
    }
}

fn parse<T: FromRedisValue>(reply: Value, otherwise: &'static str) -> Result<T, Failure> {
    from_redis_value(reply).map_err(|_| Failure::Unexpected(otherwise))
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("server", &self.connections.server())
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Backend for RedisBackend {
    fn capabilities(&self) -> Capabilities {
        // A commit of 250 changes of 1 KB keeps the server busy for about a millisecond.
        Capabilities { clock: true, together: true, most_changes: 250, most_signal_bytes: 64 << 10 }
    }

    fn read<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Snapshot> {
        Box::pin(async move {
            self.read_records(keys).await.map_err(|failure| self.describe("read from", failure))
        })
    }

    fn commit<'a>(&'a self, within: Incarnation, changes: &'a [Change]) -> Pending<'a, Commits> {
        Box::pin(async move {
            let committed = self.commit_changes(within, changes).await;
            committed.map_err(|failure| self.describe("write to", failure))
        })
    }

    fn list<'a>(&'a self, of: Listing, after: Option<&'a Key>) -> Pending<'a, Page> {
        Box::pin(
            async move { self.list_page(of, after).await.map_err(|failure| self.describe("list", failure)) },
        )
    }

    fn history<'a>(&'a self, of: Option<&'a ResourceName>, most: usize) -> Pending<'a, History> {
        Box::pin(async move {
            self.read_history(of, most).await.map_err(|failure| self.describe("read the history of", failure))
        })
    }

    fn listen(&self) -> Pending<'_, (Arc<dyn Subscriptions>, Signals)> {
        Box::pin(
            async move { self.start_listener().await.map_err(|failure| self.describe("listen to", failure)) },
        )
    }

    fn lost_nothing(&self, within: Duration) -> Pending<'_, bool> {
        Box::pin(async move {
            let (existing, info) = self.info().await.map_err(|failure| self.describe("ask", failure))?;
            Ok(existing == 0 && info.lost_nothing(within))
        })
    }

    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        Box::pin(async move {
            let (_, info) = self.info().await.map_err(|failure| self.describe("ask", failure))?;
            Ok(info.concerns())
        })
    }
}

/// A store in Redis: `redis://`.
pub type RedisStore = RecordStore<RedisBackend>;

impl RecordStore<RedisBackend> {
    /// See [`RedisBackend::open`].
    ///
    /// # Errors
    /// As there.
    pub async fn open(url: &str, namespace: &Namespace) -> Result<Self, Error> {
        RedisBackend::open(url, namespace).await.map(Self::new)
    }
}
