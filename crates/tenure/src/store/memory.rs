//! The backend behind `memory:` URLs: the records of one process, behind a mutex. For tests and examples.
//!
//! For tests of the layer above it can also do less than it could ([`MemoryBackend::with`]), and lose its data
//! ([`MemoryBackend::new_life`], [`MemoryBackend::lose_all`]).

mod listener;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Capabilities, HISTORY, Incarnation, Key, ResourceName, StoreTime, Version};

use self::listener::Listener;
use super::backend::{
    Backend, Change, Commits, Committed, Heard, History, Listing, Page, Put, Signal, Signals, Snapshot,
    Stored, Subscriptions, Text,
};
use super::open::{Kind, Missing, shown};
use super::{Pending, RecordStore, Store, Warning};
use crate::Error;
use crate::runtime::clock::{Clocks, ManualClock};
use crate::runtime::engine::random;

/// How a store in memory is opened by its URL. It is found only while somebody in this process has it open.
pub(super) const KIND: Kind = Kind {
    schemes: &["memory"],
    open: |url, _, missing| {
        Box::pin(async move {
            let name = url.strip_prefix("memory:").unwrap_or(&url);
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
                let what =
                    format!("memory store name {:?} may contain only a-z, A-Z, 0-9, _ and -", shown(name));
                return Err(Error::refused(what));
            }
            let make = || Arc::new(MemoryStore::default()) as Arc<dyn Store>;
            Ok((missing == Missing::Create).then(make))
        })
    },
};

/// How many records one page of a listing has.
const PAGE: usize = 500;

/// One namespace, in the memory of this process. Every call of [`Backend::listen`] is a listener of its own.
#[derive(Debug)]
pub struct MemoryBackend {
    clocks: Clocks,
    capabilities: Capabilities,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    life: Incarnation,
    /// Whether data were lost since the backend was made.
    lost: bool,
    data: Data,
    listeners: Vec<Arc<Listener>>,
}

#[derive(Debug, Default)]
struct Data {
    records: BTreeMap<Key, Record>,
    /// Oldest first.
    history: VecDeque<(ResourceName, Option<StoreTime>, Text)>,
}

#[derive(Clone, Debug)]
struct Record {
    version: Version,
    stamp: Option<StoreTime>,
    value: Text,
}

impl MemoryBackend {
    /// What it can do unless [`with`](Self::with) says otherwise.
    pub const CAPABILITIES: Capabilities =
        Capabilities { clock: true, together: true, most_changes: 250, most_signal_bytes: 65_536 };

    /// An empty backend on the system's clocks.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Clocks::System)
    }

    /// An empty backend on a clock that is moved by hand.
    #[must_use]
    pub fn by_hand(clock: ManualClock) -> Self {
        Self::on(Clocks::ByHand(clock))
    }

    /// The same backend with other capabilities: without a clock it stamps nothing and ignores windows; without
    /// `together` it writes the records of a change one by one, and others may write in between.
    #[must_use]
    pub fn with(self, capabilities: Capabilities) -> Self {
        Self { capabilities, ..self }
    }

    fn on(clocks: Clocks) -> Self {
        let state = State {
            life: Incarnation(random::<16>()),
            lost: false,
            data: Data::default(),
            listeners: Vec::new(),
        };
        Self { clocks, capabilities: Self::CAPABILITIES, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No step can panic between two writes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the clock shows. Read under the lock, so that stamps are in the order of the changes.
    fn now(&self) -> Option<StoreTime> {
        let clock = || StoreTime::from_micros(self.clocks.now().boot_micros());
        self.capabilities.clock.then(clock)
    }

    fn snapshot(&self, state: &State, records: Vec<Stored>) -> Snapshot {
        let wall = self.capabilities.clock.then(|| self.clocks.wall());
        Snapshot { life: state.life, now: self.now(), wall, records }
    }
}

/// A store in this process: `memory:`.
pub type MemoryStore = RecordStore<MemoryBackend>;

impl RecordStore<MemoryBackend> {
    /// An empty store on a clock that is moved by hand.
    #[must_use]
    pub fn by_hand(clock: ManualClock) -> Self {
        let clocks = Clocks::ByHand(clock.clone());
        Self::on(MemoryBackend::by_hand(clock), clocks)
    }
}

impl Default for RecordStore<MemoryBackend> {
    fn default() -> Self {
        Self::new(MemoryBackend::new())
    }
}

/// Losing data, for tests of the layer above.
impl MemoryBackend {
    /// Begins a new life with the same data, as a server that was restarted. All [`Signals`] end.
    pub fn new_life(&self) {
        self.lock().begin_life();
    }

    /// Begins a new life without any data.
    pub fn lose_all(&self) {
        let mut state = self.lock();
        state.begin_life();
        state.lost = true;
        state.data = Data::default();
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn begin_life(&mut self) {
        self.life = Incarnation(random::<16>());
        self.listeners.drain(..).for_each(|listener| listener.hang_up());
    }

    fn stored(&self, key: &Key) -> Stored {
        let key = key.clone();
        match self.data.records.get(&key) {
            Some(Record { version, stamp, value }) => {
                Stored { key, version: *version, stamp: *stamp, value: Some(value.clone()) }
            }
            None => Stored::absent(key),
        }
    }

    /// Those of the expected records that are at another version.
    fn differing<'a>(&self, expected: impl IntoIterator<Item = &'a (Key, Version)>) -> Vec<Stored> {
        let records = expected.into_iter().map(|(key, version)| (self.stored(key), version));
        records.filter(|(record, version)| record.version != **version).map(|(record, _)| record).collect()
    }

    fn conflict<'a>(
        &self,
        within: Incarnation,
        expected: impl IntoIterator<Item = &'a (Key, Version)>,
    ) -> Committed {
        Committed::Conflict(if self.life == within { self.differing(expected) } else { Vec::new() })
    }

    fn write(&mut self, put: &Put, stamp: Option<StoreTime>) {
        match &put.value {
            Some(value) => {
                let record = Record { version: put.version, stamp, value: value.clone() };
                self.data.records.insert(put.key.clone(), record);
            }
            None => drop(self.data.records.remove(&put.key)),
        }
    }

    /// What follows from a change that was applied.
    fn tell(&mut self, change: &Change, stamp: Option<StoreTime>) {
        for entry in &change.history {
            self.data.history.push_back((entry.resource.clone(), entry.at.or(stamp), entry.text.clone()));
        }
        let surplus = self.data.history.len().saturating_sub(HISTORY);
        self.data.history.drain(..surplus);
        for signal in &change.signals {
            self.send(signal, stamp);
        }
    }

    /// Sends to all who listen to the first channel that anybody listens to.
    fn send(&mut self, signal: &Signal, stamp: Option<StoreTime>) {
        self.listeners.retain(|listener| listener.is_alive());
        for channel in &signal.to {
            let heard = Heard { channel: channel.clone(), stamp, text: signal.text.clone() };
            let listeners = self.listeners.iter();
            if listeners.filter(|listener| listener.hear(&heard)).count() > 0 {
                return;
            }
        }
    }
}

// Applying changes.
impl MemoryBackend {
    /// Compares, then writes. Nothing if it was not to be.
    fn step<'a>(
        &self,
        state: &mut State,
        within: Incarnation,
        change: &Change,
        expected: impl IntoIterator<Item = &'a (Key, Version)>,
        puts: &[Put],
    ) -> Option<Done> {
        let stamp = self.now();
        let in_time = stamp.is_none_or(|now| change.window.contains(now));
        if state.life != within || !in_time || !state.differing(expected).is_empty() {
            return None;
        }
        puts.iter().for_each(|put| state.write(put, stamp));
        Some(Done(stamp))
    }

    /// All records of a change as one step.
    fn apply(&self, within: Incarnation, change: &Change) -> Committed {
        let mut state = self.lock();
        match self.step(&mut state, within, change, &change.expect, &change.put) {
            Some(Done(stamp)) => {
                state.tell(change, stamp);
                Committed::Done { stamp }
            }
            None => state.conflict(within, &change.expect),
        }
    }

    /// Each record of a change as a step of its own, which compares only this record. The change stops at the first
    /// that is not as expected; what was written before stays.
    async fn apply_one_by_one(&self, within: Incarnation, change: &Change) -> Committed {
        let expected = |put: &Put| change.expect.iter().find(|(key, _)| *key == put.key);
        // A change that writes nothing has its window, too.
        let steps = if change.put.is_empty() { vec![&[][..]] } else { change.put.chunks(1).collect() };
        let mut last = None;
        for (index, puts) in steps.into_iter().enumerate() {
            if index > 0 {
                tokio::task::yield_now().await;
            }
            let mut state = self.lock();
            match self.step(&mut state, within, change, puts.iter().filter_map(expected), puts) {
                Some(Done(stamp)) => last = stamp,
                None => return state.conflict(within, change.put.iter().filter_map(expected)),
            }
        }
        self.lock().tell(change, last);
        Committed::Done { stamp: last }
    }
}

/// A step that was taken, with its stamp.
struct Done(Option<StoreTime>);

impl Backend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn read<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Snapshot> {
        Box::pin(async move {
            let state = self.lock();
            let records = keys.iter().map(|key| state.stored(key)).collect();
            Ok(self.snapshot(&state, records))
        })
    }

    fn commit<'a>(&'a self, within: Incarnation, changes: &'a [Change]) -> Pending<'a, Commits> {
        Box::pin(async move {
            let mut done = Vec::with_capacity(changes.len());
            for change in changes {
                done.push(match self.capabilities.together {
                    true => self.apply(within, change),
                    false => self.apply_one_by_one(within, change).await,
                });
            }
            let state = self.lock();
            Ok(Commits { life: state.life, now: self.now(), done })
        })
    }

    fn list<'a>(&'a self, of: Listing, after: Option<&'a Key>) -> Pending<'a, Page> {
        Box::pin(async move {
            let state = self.lock();
            let listed = |key: &Key| match of {
                Listing::Leases => matches!(key, Key::Lease(_)),
                Listing::Resources => matches!(key, Key::Resource(_)),
            };
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            // Keys of one kind are in the order of their names.
            let keys = state.data.records.range((from, Bound::Unbounded)).map(|(key, _)| key);
            let mut keys = keys.filter(|key| listed(key)).peekable();
            let records = keys.by_ref().take(PAGE).map(|key| state.stored(key)).collect();
            let more = keys.peek().is_some();
            Ok(Page { shown: self.snapshot(&state, records), more })
        })
    }

    fn history<'a>(&'a self, of: Option<&'a ResourceName>, most: usize) -> Pending<'a, History> {
        Box::pin(async move {
            let state = self.lock();
            let newest_first = state.data.history.iter().rev();
            let of_it = newest_first.filter(|(resource, ..)| of.is_none_or(|name| name == resource));
            let mut entries: Vec<_> = of_it.take(most).map(|(_, at, text)| (*at, text.clone())).collect();
            entries.reverse();
            Ok(History { now: self.now(), entries })
        })
    }

    fn listen(&self) -> Pending<'_, (Arc<dyn Subscriptions>, Signals)> {
        Box::pin(async move {
            let (listener, signals) = Listener::new();
            let listener = Arc::new(listener);
            let mut state = self.lock();
            state.listeners.retain(|listener| listener.is_alive());
            state.listeners.push(listener.clone());
            Ok((listener as _, signals))
        })
    }

    fn lost_nothing(&self, _within: Duration) -> Pending<'_, bool> {
        Box::pin(async move { Ok(!self.lock().lost) })
    }

    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::backend::Channel;
    use super::*;

    async fn put(backend: &MemoryBackend, key: &Key, from: Version, to: Version) -> Committed {
        let life = backend.lock().life;
        let put = Put { key: key.clone(), version: to, value: Some("text".into()) };
        let change = Change { expect: vec![(key.clone(), from)], put: vec![put], ..Change::default() };
        backend.commit(life, &[change]).await.expect("an answer").done.remove(0)
    }

    async fn read(backend: &MemoryBackend, key: &Key) -> (Incarnation, Version) {
        let snapshot = backend.read(std::slice::from_ref(key)).await.expect("an answer");
        (snapshot.life, snapshot.records[0].version)
    }

    async fn lost_nothing(backend: &MemoryBackend) -> bool {
        backend.lost_nothing(Duration::ZERO).await.expect("an answer")
    }

    #[tokio::test]
    async fn a_new_life_keeps_the_data_and_ends_the_signals() {
        let backend = MemoryBackend::new();
        put(&backend, &Key::Meta, Version::NONE, Version(1)).await;
        let (life, _) = read(&backend, &Key::Meta).await;
        let (subscriptions, mut signals) = backend.listen().await.expect("a listener");

        backend.new_life();

        let (next, version) = read(&backend, &Key::Meta).await;
        assert!(next != life && version == Version(1));
        assert!(lost_nothing(&backend).await);
        assert_eq!(signals.recv().await, None);
        assert!(subscriptions.follow(Channel::new("channel")).await.is_err());
    }

    #[tokio::test]
    async fn losing_all_leaves_nothing_and_is_not_denied() {
        let backend = MemoryBackend::new();
        put(&backend, &Key::Meta, Version::NONE, Version(1)).await;
        let (life, _) = read(&backend, &Key::Meta).await;

        backend.lose_all();

        let (next, version) = read(&backend, &Key::Meta).await;
        assert!(next != life && version == Version::NONE);
        assert!(!lost_nothing(&backend).await);
    }

    #[tokio::test]
    async fn without_together_others_write_between_two_records_of_a_change() {
        let capabilities = Capabilities { together: false, ..MemoryBackend::CAPABILITIES };
        let backend = MemoryBackend::new().with(capabilities);
        let put_at = |key| Put { key, version: Version(1), value: Some("text".into()) };
        let change = Change {
            expect: vec![(Key::Meta, Version::NONE), (Key::Ttls, Version::NONE)],
            put: vec![put_at(Key::Meta), put_at(Key::Ttls)],
            ..Change::default()
        };
        let life = backend.lock().life;

        let changes = [change];
        let (first, second) = tokio::join!(
            backend.commit(life, &changes),
            put(&backend, &Key::Ttls, Version::NONE, Version(2))
        );

        assert!(matches!(second, Committed::Done { .. }), "{second:?}");
        let done = first.expect("an answer").done.remove(0);
        let Committed::Conflict(differing) = done else { panic!("{done:?}") };
        let versions: Vec<_> = differing.into_iter().map(|record| (record.key, record.version)).collect();
        assert_eq!(versions, [(Key::Meta, Version(1)), (Key::Ttls, Version(2))]);
    }
}
