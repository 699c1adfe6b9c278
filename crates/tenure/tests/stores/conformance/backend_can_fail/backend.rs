//! A backend in front of the one in memory, which does wrong what its [`Flaw`] says.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::Error;
use tenure::store::backend::{
    Backend, Change, Commits, Committed, Heard, History, Listing, Page, Put, Signal, Signals, Snapshot,
    Stored, Subscriptions,
};
use tenure::store::{MemoryBackend, Pending, Warning};
use tenure_core::{Capabilities, Incarnation, Key, ResourceName, StoreTime, Version, Window};

use super::flaw::{Flaw, Habit};
use super::listener::{FlawedListener, Listeners};

pub(crate) struct FlawedBackend {
    pub(crate) flaw: Flaw,
    /// The same for all handles.
    pub(crate) inner: Arc<MemoryBackend>,
    /// What it says that its life is, if that is not true.
    alias: Option<Incarnation>,
    is_second: bool,
    pub(crate) is_dead: AtomicBool,
    seen: Mutex<HashMap<Key, Stored>>,
    stamps: Mutex<HashMap<Version, StoreTime>>,
    first_stamps: Mutex<HashMap<Key, StoreTime>>,
    sent: Mutex<Vec<Heard>>,
    answers: Mutex<VecDeque<Vec<Stored>>>,
    pub(crate) listeners: Listeners,
    count: AtomicUsize,
    busy: AtomicBool,
}

impl fmt::Debug for FlawedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlawedBackend")
    }
}

impl FlawedBackend {
    pub(crate) fn on(flaw: Flaw, inner: Arc<MemoryBackend>, is_second: bool) -> Self {
        let hides = matches!(flaw.habit, Some(Habit::HidesItsLife | Habit::HidesItsLoss));
        Self {
            flaw,
            inner,
            alias: hides.then_some(Incarnation(7)),
            is_second,
            is_dead: AtomicBool::new(false),
            seen: Mutex::default(),
            stamps: Mutex::default(),
            first_stamps: Mutex::default(),
            sent: Mutex::default(),
            answers: Mutex::default(),
            listeners: Arc::default(),
            count: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
        }
    }

    fn has(&self, habit: Habit) -> bool {
        self.flaw.habit == Some(habit)
    }

    /// A number that grows with every call.
    fn counted(&self) -> usize {
        self.count.fetch_add(1, Ordering::SeqCst)
    }

    async fn life(&self) -> Incarnation {
        self.inner.read(&[]).await.unwrap().life
    }

    /// What the life is called outside.
    fn told(&self, life: Incarnation) -> Incarnation {
        self.alias.unwrap_or(life)
    }

    /// The change as the backend behind this one gets it.
    fn translated(&self, change: &Change) -> Change {
        let mut change = change.clone();
        (self.flaw.asked)(&mut change);
        for (key, version) in &mut change.expect {
            (*key, *version) = ((self.flaw.named)(key), (self.flaw.versioned)(*version));
        }
        for put in &mut change.put {
            (put.key, put.version) = ((self.flaw.named)(&put.key), (self.flaw.versioned)(put.version));
        }
        if !self.flaw.clock && !self.has(Habit::KeepsWindowsAllTheSame) {
            change.window = Window::default();
        }
        change
    }

    /// Commits, and shows the records under the names that the asker uses.
    async fn commit_as_asked(&self, within: Incarnation, asked: &[Change]) -> Commits {
        let changes: Vec<Change> = asked.iter().map(|change| self.translated(change)).collect();
        let mut commits = self.commit_behind(within, &changes).await;
        for (asked, done) in asked.iter().zip(&mut commits.done) {
            if let Committed::Conflict(records) = done {
                for record in records {
                    let is_it = |(key, _): &&(Key, Version)| (self.flaw.named)(key) == record.key;
                    record.key =
                        asked.expect.iter().find(is_it).map_or(record.key.clone(), |(key, _)| key.clone());
                    self.restamp(record);
                }
            }
        }
        if !self.flaw.clock && !self.has(Habit::StampsAllTheSame) {
            commits.now = None;
            commits.done.iter_mut().for_each(|done| match done {
                Committed::Done { stamp } => *stamp = None,
                Committed::Conflict(records) => records.iter_mut().for_each(|record| record.stamp = None),
            });
        }
        commits
    }

    async fn commit_behind(&self, within: Incarnation, changes: &[Change]) -> Commits {
        match self.flaw.habit {
            Some(Habit::ComparesBeforeItLocks) => self.compare_before_locking(within, changes).await,
            Some(Habit::BatchIsAllOrNothing) => self.commit_all_or_nothing(within, changes).await,
            Some(Habit::BatchStopsAtConflict) => self.commit_until_conflict(within, changes).await,
            Some(Habit::StampsBeforeItLocks) => self.stamp_before_locking(within, changes).await,
            Some(Habit::StopsHalfWay) => self.commit_record_by_record(within, changes).await,
            Some(Habit::LosesWrites) if self.counted() % 20 == 19 => {
                let mut commits = self.inner.commit(within, &[]).await.unwrap();
                commits.done = changes.iter().map(|_| Committed::Done { stamp: commits.now }).collect();
                commits
            }
            Some(Habit::SendsBeforeItWrites) => {
                let early: Vec<Change> = changes.iter().map(only_signals).collect();
                self.inner.commit(within, &early).await.unwrap();
                wait_a_little().await;
                let silent: Vec<Change> =
                    changes.iter().map(|change| Change { signals: vec![], ..change.clone() }).collect();
                self.inner.commit(within, &silent).await.unwrap()
            }
            Some(Habit::LosesBursts) => {
                let mut changes = changes.to_vec();
                changes.iter_mut().skip(100).for_each(|change| change.signals.clear());
                self.inner.commit(within, &changes).await.unwrap()
            }
            Some(Habit::WindowOfTheFirst) => {
                let mut changes = changes.to_vec();
                let first = changes.first().map_or(Window::default(), |change| change.window);
                changes.iter_mut().for_each(|change| change.window = first);
                self.inner.commit(within, &changes).await.unwrap()
            }
            Some(Habit::IgnoresLife) => self.inner.commit(self.life().await, changes).await.unwrap(),
            Some(Habit::ComparesHalfOfTheLife) => {
                let life = self.life().await;
                let same = life.0 as u64 == within.0 as u64;
                self.inner.commit(if same { life } else { within }, changes).await.unwrap()
            }
            Some(Habit::TellsTheLifeOfTheAsker) => {
                let commits = self.inner.commit(within, changes).await.unwrap();
                Commits { life: within, ..commits }
            }
            _ => {
                let mut commits = self.inner.commit(within, changes).await.unwrap();
                for (change, done) in changes.iter().zip(&mut commits.done) {
                    match done {
                        Committed::Conflict(records) => self.after_conflict(change, records).await,
                        Committed::Done { stamp } => self.after_done(change, *stamp).await,
                    }
                }
                commits
            }
        }
    }

    async fn after_conflict(&self, change: &Change, records: &mut Vec<Stored>) {
        let life = self.life().await;
        let again = match self.flaw.habit {
            Some(Habit::WritesOnConflict) => {
                Change { expect: vec![], window: Window::default(), ..change.clone() }
            }
            Some(Habit::WritesHalfOnConflict) => {
                let differs = |put: &Put| records.iter().any(|record| record.key == put.key);
                let put = change.put.iter().filter(|put| !differs(put)).cloned().collect();
                Change { put, ..Change::default() }
            }
            Some(Habit::RemembersOnConflict) => {
                Change { history: change.history.clone(), ..Change::default() }
            }
            Some(Habit::SendsOnConflict) => only_signals(change),
            Some(Habit::TellsOnConflict) => {
                Change { history: change.history.clone(), ..only_signals(change) }
            }
            Some(Habit::ConflictShowsAll) => {
                let keys: Vec<Key> = change.expect.iter().map(|(key, _)| key.clone()).collect();
                *records = self.inner.read(&keys).await.unwrap().records;
                return;
            }
            _ => return,
        };
        self.inner.commit(life, &[again]).await.unwrap();
    }

    async fn after_done(&self, change: &Change, stamp: Option<StoreTime>) {
        let mut first = self.first_stamps.lock().unwrap();
        match self.flaw.habit {
            Some(Habit::KeepsTheFirstStamp) => {
                for put in &change.put {
                    first.entry(put.key.clone()).or_insert(stamp.unwrap());
                }
            }
            Some(Habit::RestampsWhatIsExpected) => {
                for (key, _) in &change.expect {
                    first.insert(key.clone(), stamp.unwrap());
                }
            }
            _ => {}
        }
        if self.has(Habit::RepeatsThePast) {
            let heard =
                |signal: &Signal| Heard { channel: signal.to[0].clone(), stamp, text: signal.text.clone() };
            self.sent
                .lock()
                .unwrap()
                .extend(change.signals.iter().filter(|signal| !signal.to.is_empty()).map(heard));
        }
    }

    /// Compares, lets others go first, and writes what it would have written.
    async fn compare_before_locking(&self, within: Incarnation, changes: &[Change]) -> Commits {
        let mut ready = Vec::new();
        for change in changes {
            let trial = Change { put: vec![], history: vec![], signals: vec![], ..change.clone() };
            ready.push(self.inner.commit(within, &[trial]).await.unwrap().done.remove(0));
        }
        wait_a_little().await;
        let mut commits = self.inner.commit(within, &[]).await.unwrap();
        for (change, ready) in changes.iter().zip(ready) {
            let blind = Change { expect: vec![], ..change.clone() };
            commits.done.push(match ready {
                Committed::Done { .. } => self.inner.commit(within, &[blind]).await.unwrap().done.remove(0),
                conflict => conflict,
            });
        }
        commits
    }

    async fn commit_all_or_nothing(&self, within: Incarnation, changes: &[Change]) -> Commits {
        let trial =
            |change: &Change| Change { put: vec![], history: vec![], signals: vec![], ..change.clone() };
        let trials: Vec<Change> = changes.iter().map(trial).collect();
        let mut tried = self.inner.commit(within, &trials).await.unwrap();
        if tried.done.iter().all(|done| matches!(done, Committed::Done { .. })) {
            return self.inner.commit(within, changes).await.unwrap();
        }
        for done in &mut tried.done {
            if matches!(done, Committed::Done { .. }) {
                *done = Committed::Conflict(vec![]);
            }
        }
        tried
    }

    async fn commit_until_conflict(&self, within: Incarnation, changes: &[Change]) -> Commits {
        let mut commits = self.inner.commit(within, &[]).await.unwrap();
        for change in changes {
            let stopped = commits.done.iter().any(|done| matches!(done, Committed::Conflict(_)));
            commits.done.push(match stopped {
                true => Committed::Conflict(vec![]),
                false => {
                    self.inner.commit(within, std::slice::from_ref(change)).await.unwrap().done.remove(0)
                }
            });
        }
        commits
    }

    async fn stamp_before_locking(&self, within: Incarnation, changes: &[Change]) -> Commits {
        let stamp = self.inner.read(&[]).await.unwrap().now.unwrap();
        tokio::time::sleep(Duration::from_micros(100) * changes.len() as u32).await;
        let mut commits = self.inner.commit(within, changes).await.unwrap();
        for (change, done) in changes.iter().zip(&mut commits.done) {
            if is_done(done) {
                *done = Committed::Done { stamp: Some(stamp) };
                self.stamps.lock().unwrap().extend(change.put.iter().map(|put| (put.version, stamp)));
            }
        }
        commits
    }

    /// Compares all at once, but writes one by one.
    async fn commit_record_by_record(&self, within: Incarnation, changes: &[Change]) -> Commits {
        let mut commits = self.inner.commit(within, &[]).await.unwrap();
        for change in changes {
            let first = Change { put: change.put.iter().take(1).cloned().collect(), ..change.clone() };
            let done = self.inner.commit(within, &[first]).await.unwrap().done.remove(0);
            for put in change.put.iter().skip(1).filter(|_| is_done(&done)) {
                tokio::task::yield_now().await;
                let rest = Change { put: vec![put.clone()], ..Change::default() };
                self.inner.commit(within, &[rest]).await.unwrap();
            }
            commits.done.push(done);
        }
        commits
    }

    fn restamp(&self, record: &mut Stored) {
        if let Some(stamp) = self.stamps.lock().unwrap().get(&record.version) {
            record.stamp = Some(*stamp);
        }
        let exists = record.version != Version::NONE;
        if let Some(stamp) = self.first_stamps.lock().unwrap().get(&record.key).filter(|_| exists) {
            record.stamp = Some(*stamp);
        }
    }

    /// What is shown, after all that is wrong with it.
    fn show(&self, snapshot: &mut Snapshot) {
        snapshot.life = self.told(snapshot.life);
        snapshot.records.iter_mut().for_each(|record| self.restamp(record));
        if !self.flaw.clock && !self.has(Habit::StampsAllTheSame) {
            snapshot.now = None;
            snapshot.records.iter_mut().for_each(|record| record.stamp = None);
        }
        if self.has(Habit::ClockRunsBackwards) {
            let count = self.counted() as u64;
            snapshot.now = snapshot.now.map(|now| StoreTime::from_micros(now.as_micros() - count));
        }
        (self.flaw.shown)(snapshot);
    }

    async fn read_as_asked(&self, keys: &[Key]) -> Snapshot {
        let named: Vec<Key> = keys.iter().map(self.flaw.named).collect();
        let mut snapshot = self.inner.read(&named).await.unwrap();
        for (record, key) in snapshot.records.iter_mut().zip(keys) {
            record.key = key.clone();
        }
        if self.has(Habit::ReadsStale) || self.is_second {
            let mut seen = self.seen.lock().unwrap();
            for record in &mut snapshot.records {
                if let Some(before) = seen.insert(record.key.clone(), record.clone()) {
                    *record = before;
                }
            }
        }
        snapshot
    }

    /// Waits for whoever was before, as if there were one connection.
    async fn queue(&self) -> Queued<'_> {
        while self.has(Habit::QueuesBehindTheGivenUp) && self.busy.swap(true, Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if self.has(Habit::QueuesBehindTheGivenUp) {
            wait_a_little().await;
        }
        Queued(self)
    }

    /// On the way to the store others may overtake, as they may on the way to a real one.
    async fn reach(&self) -> Result<(), Error> {
        tokio::task::yield_now().await;
        if self.is_dead.load(Ordering::SeqCst) { Err(Error::unavailable("not connected")) } else { Ok(()) }
    }
}

/// A place in the queue, left only by who got an answer.
struct Queued<'a>(&'a FlawedBackend);

impl Queued<'_> {
    fn leave(self) {
        self.0.busy.store(false, Ordering::SeqCst);
    }
}

async fn wait_a_little() {
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn is_done(done: &Committed) -> bool {
    matches!(done, Committed::Done { .. })
}

fn only_signals(change: &Change) -> Change {
    Change { signals: change.signals.clone(), ..Change::default() }
}

impl Backend for FlawedBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities { clock: self.flaw.clock, ..self.inner.capabilities() }
    }

    fn read<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Snapshot> {
        Box::pin(async move {
            self.reach().await?;
            let queued = self.queue().await;
            let mut snapshot = self.read_as_asked(keys).await;
            if self.has(Habit::AnswersTheGivenUp) || self.has(Habit::MixesUpReads) {
                // As if answers were matched with questions by their order alone.
                self.answers.lock().unwrap().push_back(snapshot.records);
                wait_a_little().await;
                let mut answers = self.answers.lock().unwrap();
                let next =
                    if self.has(Habit::MixesUpReads) { answers.pop_back() } else { answers.pop_front() };
                snapshot.records = next.unwrap();
            }
            self.show(&mut snapshot);
            queued.leave();
            Ok(snapshot)
        })
    }

    fn commit<'a>(&'a self, within: Incarnation, changes: &'a [Change]) -> Pending<'a, Commits> {
        Box::pin(async move {
            self.reach().await?;
            let queued = self.queue().await;
            let within = match self.alias {
                Some(alias) if alias == within => self.life().await,
                _ => within,
            };
            let mut commits = self.commit_as_asked(within, changes).await;
            commits.life = self.told(commits.life);
            (self.flaw.done)(changes, &mut commits);
            queued.leave();
            Ok(commits)
        })
    }

    fn list<'a>(&'a self, of: Listing, after: Option<&'a Key>) -> Pending<'a, Page> {
        Box::pin(async move {
            let mut page = self.inner.list(of, after).await?;
            if let Some(after) = after {
                let last = self.inner.read(std::slice::from_ref(after)).await?.records.remove(0);
                let exists = last.version != Version::NONE;
                if exists && self.has(Habit::ListsFromInsteadOfAfter) {
                    page.shown.records.insert(0, last);
                } else if !exists && self.has(Habit::ListsNothingAfterWhatIsGone) {
                    (page.shown.records, page.more) = (vec![], false);
                }
            }
            if self.has(Habit::ListsAllKinds) && !page.more {
                let other = if of == Listing::Leases { Listing::Resources } else { Listing::Leases };
                page.shown.records.extend(self.inner.list(other, None).await?.shown.records);
            }
            self.show(&mut page.shown);
            (self.flaw.paged)(&mut page, after);
            Ok(page)
        })
    }

    fn history<'a>(&'a self, of: Option<&'a ResourceName>, most: usize) -> Pending<'a, History> {
        Box::pin(async move {
            let of = of.filter(|_| !self.has(Habit::ShowsTheHistoryOfAll));
            let whole = self.has(Habit::ShowsTheOldestHistory) || self.has(Habit::ShowsTheWholeHistory);
            let mut history = self.inner.history(of, if whole { usize::MAX } else { most }).await?;
            if self.has(Habit::ShowsTheOldestHistory) {
                history.entries.truncate(most);
            }
            if !self.flaw.clock && !self.has(Habit::StampsAllTheSame) {
                history.now = None;
                history.entries.iter_mut().for_each(|(at, _)| *at = None);
            }
            (self.flaw.remembered)(&mut history, most);
            Ok(history)
        })
    }

    fn listen(&self) -> Pending<'_, (Arc<dyn Subscriptions>, Signals)> {
        Box::pin(async move {
            let (behind, from) = self.inner.listen().await?;
            let past = self.sent.lock().unwrap().clone();
            let (listener, signals) = FlawedListener::relay(self.flaw, behind, from, past, &self.listeners);
            Ok((listener as _, signals))
        })
    }

    fn lost_nothing(&self, within: Duration) -> Pending<'_, bool> {
        Box::pin(async move {
            let lost_nothing = self.inner.lost_nothing(within).await?;
            Ok(lost_nothing || self.has(Habit::DeniesItsLoss))
        })
    }

    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        self.inner.safety()
    }
}
