//! What the cases share: a backend whose answers are checked, a listener, and short words for changes.
//!
//! Every answer is waited for with a limit, and everything that can be checked of any answer is checked here.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Capabilities, Incarnation, Key, LeaseId, ResourceName, StoreTime, Version};
use tokio::task::JoinSet;

use super::BackendFixture;
pub(super) use crate::conformance::chance::Chance;
use crate::store::Pending;
use crate::store::backend::{
    Backend, Change, Channel, Commits, Committed, Heard, HistoryEntry, Listing, Put, Signal, Signals,
    Snapshot, Stored, Subscriptions, Text,
};
use crate::store::codec::key_name;

/// Longer than any store that works takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
pub(super) const NONE: Version = Version::NONE;

/// What the store answers, if it does within a generous limit.
pub(super) async fn answered<T>(pending: Pending<'_, T>) -> T {
    match tokio::time::timeout(PATIENCE, pending).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => panic!("the store failed: {error} ({error:?})"),
        Err(_) => panic!("the store did not answer within {PATIENCE:?}"),
    }
}

/// Waits for all tasks. The first one that fails is the one to look at; the others are dropped with the set.
pub(super) async fn all_done<T: 'static>(mut tasks: JoinSet<T>) -> Vec<T> {
    let mut results = Vec::new();
    while let Some(done) = tasks.join_next().await {
        results.push(done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
    }
    results
}

/// One open backend, with the life in which it was first asked.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) can: Capabilities,
    pub(super) life: Incarnation,
}

// Opening, reading.
impl Handle {
    pub(super) async fn of(fixture: &impl BackendFixture) -> Self {
        Self::on(fixture.backend()).await
    }

    pub(super) async fn another(fixture: &impl BackendFixture) -> Self {
        Self::on(fixture.another().await).await
    }

    /// The backend and several more on the same namespace.
    pub(super) async fn several(fixture: &impl BackendFixture, count: usize) -> Vec<Self> {
        let mut handles = vec![Self::of(fixture).await];
        while handles.len() < count {
            handles.push(Self::another(fixture).await);
        }
        handles
    }

    async fn on(backend: Arc<dyn Backend>) -> Self {
        let life = answered(backend.read(&[])).await.life;
        Self { can: backend.capabilities(), backend, life }
    }

    pub(super) async fn snapshot(&self, keys: &[Key]) -> Snapshot {
        let snapshot = answered(self.backend.read(keys)).await;
        let shown: Vec<&Key> = snapshot.records.iter().map(|record| &record.key).collect();
        assert_eq!(shown, keys.iter().collect::<Vec<_>>(), "records in another order than asked for");
        self.check(&snapshot);
        snapshot
    }

    pub(super) async fn read(&self, keys: &[Key]) -> Vec<Stored> {
        self.snapshot(keys).await.records
    }

    pub(super) async fn read_one(&self, key: &Key) -> Stored {
        self.read(std::slice::from_ref(key)).await.remove(0)
    }

    /// The store's clock; only for stores that have one.
    pub(super) async fn now(&self) -> StoreTime {
        self.snapshot(&[]).await.now.expect("a store with a clock tells the time")
    }

    /// All of a listing, page by page, in order and without duplicates.
    pub(super) async fn list(&self, of: Listing) -> Vec<Stored> {
        self.list_after(of, None).await
    }

    pub(super) async fn list_after(&self, of: Listing, after: Option<&Key>) -> Vec<Stored> {
        let (mut all, mut after): (Vec<Stored>, _) = (Vec::new(), after.cloned());
        loop {
            let page = answered(self.backend.list(of, after.as_ref())).await;
            self.check(&page.shown);
            for record in page.shown.records {
                assert_ne!(record.version, NONE, "{:?} does not exist, but is listed", record.key);
                let behind = after.as_ref().is_none_or(|last| key_name(&record.key) > key_name(last));
                assert!(behind, "{:?} is listed after {after:?}", record.key);
                after = Some(record.key.clone());
                all.push(record);
            }
            if !page.more {
                return all;
            }
            assert!(after.is_some(), "an empty page, and more after it");
        }
    }

    pub(super) async fn history(
        &self,
        of: Option<&ResourceName>,
        most: usize,
    ) -> Vec<(Option<StoreTime>, String)> {
        let history = answered(self.backend.history(of, most)).await;
        assert_eq!(history.now.is_some(), self.can.clock);
        assert!(history.entries.len() <= most, "{} entries, at most {most} asked for", history.entries.len());
        history.entries.into_iter().map(|(at, text)| (at, text.as_str().to_owned())).collect()
    }

    /// The texts of the whole history.
    pub(super) async fn past(&self) -> Vec<String> {
        self.history(None, 20_000).await.into_iter().map(|(_, text)| text).collect()
    }

    /// What has to be true of every answer.
    fn check(&self, Snapshot { life, now, records, .. }: &Snapshot) {
        assert_eq!(*life, self.life, "another life without a restart");
        assert_eq!(now.is_some(), self.can.clock, "the clock, and whether there is one");
        records.iter().for_each(|record| self.check_record(record, *now));
    }

    fn check_record(&self, record: &Stored, now: Option<StoreTime>) {
        let exists = record.version != NONE;
        assert_eq!(record.value.is_some(), exists, "{record:?}");
        assert_eq!(record.stamp.is_some(), exists && self.can.clock, "{record:?}");
        assert!(record.stamp <= now, "{record:?} was written after the answer of {now:?} was made");
    }
}

// Changing.
impl Handle {
    pub(super) async fn commit(&self, changes: &[Change]) -> Vec<Committed> {
        let commits = answered(self.backend.commit(self.life, changes)).await;
        assert_eq!(commits.life, self.life, "another life without a restart");
        self.check_commits(changes, &commits);
        commits.done
    }

    pub(super) async fn commit_one(&self, change: &Change) -> Committed {
        self.commit(std::slice::from_ref(change)).await.remove(0)
    }

    /// Commits a change that has to be applied. Says its stamp.
    pub(super) async fn apply(&self, change: &Change) -> Option<StoreTime> {
        match self.commit_one(change).await {
            Committed::Done { stamp } => stamp,
            Committed::Conflict(records) => panic!("{change:?} was not applied: {records:?}"),
        }
    }

    /// Commits a change that must not be applied. Says which records differ, by key.
    pub(super) async fn refused(&self, change: &Change) -> Vec<Stored> {
        match self.commit_one(change).await {
            Committed::Conflict(mut records) => {
                records.sort_by(|a, b| a.key.cmp(&b.key));
                records
            }
            Committed::Done { .. } => panic!("{change:?} was applied"),
        }
    }

    /// Creates a record. Says its version.
    pub(super) async fn create(&self, key: &Key, text: &str) -> Version {
        let version = version();
        self.apply(&write(version, text, &[(key, NONE)])).await;
        version
    }

    /// Applies any number of changes, as many at once as the store takes.
    pub(super) async fn apply_all(&self, changes: &[Change]) {
        for some in changes.chunks(self.can.most_changes) {
            for done in self.commit(some).await {
                assert!(matches!(done, Committed::Done { .. }), "{done:?}");
            }
        }
    }

    fn check_commits(&self, changes: &[Change], commits: &Commits) {
        assert_eq!(commits.now.is_some(), self.can.clock, "the clock, and whether there is one");
        assert_eq!(commits.done.len(), changes.len(), "one answer per change");
        for (change, done) in changes.iter().zip(&commits.done) {
            match done {
                Committed::Done { stamp } => {
                    assert_eq!(stamp.is_some(), self.can.clock, "{done:?}");
                    assert!(*stamp <= commits.now, "{stamp:?} is after the answer of {:?}", commits.now);
                    let in_time = stamp.is_none_or(|stamp| change.window.contains(stamp));
                    assert!(in_time, "{stamp:?} is outside of {:?}", change.window);
                }
                Committed::Conflict(records) => {
                    let keys: BTreeSet<&Key> = records.iter().map(|record| &record.key).collect();
                    assert_eq!(keys.len(), records.len(), "a record twice: {records:?}");
                    for record in records {
                        self.check_record(record, commits.now);
                        let expected = change.expect.iter().find(|(key, _)| *key == record.key);
                        let (_, expected) = expected.expect("only expected records are shown");
                        assert_ne!(record.version, *expected, "{:?} does not differ", record.key);
                    }
                }
            }
        }
    }

    /// Sends to the first of these channels that somebody listens to, by a change that writes nothing.
    pub(super) async fn send(&self, to: &[&Channel], text: &str) -> Option<StoreTime> {
        self.apply(&sending(to, text)).await
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// Somebody who listens.
pub(super) struct Listener {
    pub(super) subscriptions: Arc<dyn Subscriptions>,
    pub(super) signals: Signals,
}

impl Listener {
    pub(super) async fn on(handle: &Handle) -> Self {
        let (subscriptions, signals) = answered(handle.backend.listen()).await;
        Self { subscriptions, signals }
    }

    /// A listener that follows these channels.
    pub(super) async fn to(handle: &Handle, channels: &[&Channel]) -> Self {
        let listener = Self::on(handle).await;
        for channel in channels {
            listener.follow(channel).await;
        }
        listener
    }

    pub(super) async fn follow(&self, channel: &Channel) {
        answered(self.subscriptions.follow(channel.clone())).await;
    }

    /// The next signal, waited for with a limit.
    pub(super) async fn next(&mut self) -> Heard {
        match tokio::time::timeout(PATIENCE, self.signals.recv()).await {
            Ok(Some(heard)) => heard,
            Ok(None) => panic!("the signals ended"),
            Err(_) => panic!("no signal came within {PATIENCE:?}"),
        }
    }

    /// All signals up to one with this text, without it.
    pub(super) async fn until(&mut self, last: &str) -> Vec<Heard> {
        let mut all = Vec::new();
        loop {
            let heard = self.next().await;
            if heard.text.as_str() == last {
                return all;
            }
            all.push(heard);
        }
    }

    /// Their texts.
    pub(super) async fn heard_before(&mut self, last: &str) -> Vec<String> {
        self.until(last).await.iter().map(|heard| heard.text.as_str().to_owned()).collect()
    }
}

// Words.

pub(super) fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a valid name")
}

pub(super) fn resource(text: &str) -> Key {
    Key::Resource(name(text))
}

pub(super) fn lease(number: u128) -> Key {
    Key::Lease(LeaseId(number))
}

/// A version that was never used before.
pub(super) fn version() -> Version {
    Version(random().max(1))
}

/// A channel that nobody else uses, with a name as long as it may be.
pub(super) fn channel() -> Channel {
    Channel::new(format!("conformance_{:048x}", random()))
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    u64::from_le_bytes(bytes)
}

pub(super) fn shuffle<T>(items: &mut [T], chance: &mut Chance) {
    for index in (1..items.len()).rev() {
        items.swap(index, usize::try_from(chance.below(index as u64 + 1)).expect("an index"));
    }
}

/// Writes this text at this version into all of these records, if they are at the versions beside them.
pub(super) fn write(version: Version, text: &str, records: &[(&Key, Version)]) -> Change {
    put(version, Some(text), records)
}

/// Deletes these records, if they are at the versions beside them.
pub(super) fn delete(records: &[(&Key, Version)]) -> Change {
    put(version(), None, records)
}

fn put(version: Version, text: Option<&str>, records: &[(&Key, Version)]) -> Change {
    let put = |(key, _): &(&Key, Version)| Put { key: (*key).clone(), version, value: text.map(Text::from) };
    Change {
        expect: records.iter().map(|(key, version)| ((*key).clone(), *version)).collect(),
        put: records.iter().map(put).collect(),
        ..Change::default()
    }
}

/// Writes nothing, and sends this to the first of these channels that somebody listens to.
pub(super) fn sending(to: &[&Channel], text: &str) -> Change {
    // The cases about signals write no such record.
    let expect = vec![(Key::Ttls, NONE)];
    Change { expect, signals: vec![signal(to, text)], ..Change::default() }
}

pub(super) fn signal(to: &[&Channel], text: &str) -> Signal {
    Signal { to: to.iter().copied().cloned().collect(), text: text.into() }
}

pub(super) fn entry(of: &str, text: &str) -> HistoryEntry {
    HistoryEntry { resource: name(of), at: None, text: text.into() }
}

pub(super) fn text(record: &Stored) -> Option<&str> {
    record.value.as_ref().map(Text::as_str)
}

pub(super) fn is_done(committed: &Committed) -> bool {
    matches!(committed, Committed::Done { .. })
}

/// What breaks careless quoting, splitting, matching and encoding. Without NUL, which no record contains.
pub(super) const HOSTILE: &str = "'; DROP TABLE x; -- \" ` $1 $$ %s %n {0} {{}} [x] <a&b> \\ \\0 \\u0000 / .. * ? _ % # @ ! | ~ ^ : , ; = + - ( ) \
     é e\u{301} ß İ ﬁ 𝕏 🦀 漢字 עברית \u{202e} \u{200b} \u{feff} \u{fffd} \u{10ffff}";
