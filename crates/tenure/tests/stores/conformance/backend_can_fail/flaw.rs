//! What a backend may do wrong, and the fixture of one that does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure::conformance::Restarted;
use tenure::conformance::backend::BackendFixture;
use tenure::store::MemoryBackend;
use tenure::store::backend::{
    Backend, Change, Commits, Committed, Heard, History, Page, Snapshot, Stored, Text,
};
use tenure::testing::ManualClock;
use tenure_core::{Capabilities, Key, ResourceName, StoreTime, Version};

use super::backend::FlawedBackend;

/// What a backend does wrong: with what it is asked, and with what it answers.
#[derive(Clone, Copy)]
pub(crate) struct Flaw {
    pub(crate) asked: fn(&mut Change),
    pub(crate) done: fn(&[Change], &mut Commits),
    pub(crate) shown: fn(&mut Snapshot),
    pub(crate) paged: fn(&mut Page, Option<&Key>),
    pub(crate) remembered: fn(&mut History, usize),
    pub(crate) heard: fn(&mut Heard),
    /// Under which name it keeps a record.
    pub(crate) named: fn(&Key) -> Key,
    pub(crate) versioned: fn(Version) -> Version,
    pub(crate) habit: Option<Habit>,
    pub(crate) clock: bool,
    pub(crate) together: bool,
}

impl Default for Flaw {
    fn default() -> Self {
        Self {
            asked: |_| (),
            done: |_, _| (),
            shown: |_| (),
            paged: |_, _| (),
            remembered: |_, _| (),
            heard: |_| (),
            named: Key::clone,
            versioned: |version| version,
            habit: None,
            clock: true,
            together: true,
        }
    }
}

/// What takes more than to change a question or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    WritesOnConflict,
    WritesHalfOnConflict,
    RemembersOnConflict,
    SendsOnConflict,
    TellsOnConflict,
    ConflictShowsAll,
    ComparesBeforeItLocks,
    BatchIsAllOrNothing,
    BatchStopsAtConflict,
    LosesWrites,
    IgnoresLife,
    TellsTheLifeOfTheAsker,
    ComparesHalfOfTheLife,
    ReadsStale,
    ReadsStaleElsewhere,
    MixesUpReads,
    WindowOfTheFirst,
    StampsBeforeItLocks,
    KeepsTheFirstStamp,
    RestampsWhatIsExpected,
    ClockRunsBackwards,
    StampsAllTheSame,
    KeepsWindowsAllTheSame,
    ListsFromInsteadOfAfter,
    ListsNothingAfterWhatIsGone,
    ListsAllKinds,
    ShowsTheOldestHistory,
    ShowsTheWholeHistory,
    ShowsTheHistoryOfAll,
    SendsBeforeItWrites,
    LosesBursts,
    OneListener,
    FollowsLater,
    RepeatsThePast,
    HearsTwice,
    NeverForgets,
    ForgetsForGood,
    HearsAll,
    HidesItsLife,
    HidesItsLoss,
    DeniesItsLoss,
    NeverRecovers,
    CutsOffSilently,
    StopsHalfWay,
    QueuesBehindTheGivenUp,
    AnswersTheGivenUp,
}

pub(crate) fn texts(change: &mut Change, then: fn(&str) -> Option<Text>) {
    for put in &mut change.put {
        put.value = put.value.as_ref().and_then(|text| then(text.as_str()));
    }
}

pub(crate) fn conflicts(commits: &mut Commits, then: fn(&mut Vec<Stored>)) {
    for done in &mut commits.done {
        if let Committed::Conflict(records) = done {
            then(records);
        }
    }
}

pub(crate) fn renamed(key: &Key, then: fn(&str) -> String) -> Key {
    let name = |name: &ResourceName| {
        let cut: String = then(name.as_str()).chars().take(50).collect();
        ResourceName::new(&cut).unwrap_or_else(|_| name.clone())
    };
    match key {
        Key::Resource(resource) => Key::Resource(name(resource)),
        Key::Runs(resource) => Key::Runs(name(resource)),
        key => key.clone(),
    }
}

pub(crate) fn later(time: StoreTime) -> StoreTime {
    time + Duration::from_micros(1)
}

pub(crate) fn earlier(time: StoreTime) -> StoreTime {
    StoreTime::from_micros(time.as_micros() - 1)
}

pub(crate) struct Flawed {
    clock: ManualClock,
    backend: Arc<FlawedBackend>,
}

impl Flawed {
    pub(crate) fn fresh(flaw: Flaw) -> Self {
        let clock = ManualClock::new();
        let has_clock =
            flaw.clock || matches!(flaw.habit, Some(Habit::StampsAllTheSame | Habit::KeepsWindowsAllTheSame));
        let capabilities =
            Capabilities { clock: has_clock, together: flaw.together, ..MemoryBackend::CAPABILITIES };
        let inner = Arc::new(MemoryBackend::by_hand(clock.clone()).with(capabilities));
        let backend = Arc::new(FlawedBackend::on(flaw, inner, false));
        Self { clock, backend }
    }
}

impl BackendFixture for Flawed {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    async fn another(&self) -> Arc<dyn Backend> {
        if self.backend.flaw.habit == Some(Habit::ReadsStaleElsewhere) {
            let FlawedBackend { flaw, inner, .. } = &*self.backend;
            return Arc::new(FlawedBackend::on(*flaw, inner.clone(), true));
        }
        self.backend.clone()
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    async fn restart(&mut self) -> Restarted {
        let FlawedBackend { flaw, inner, .. } = &*self.backend;
        match flaw.habit {
            Some(Habit::HidesItsLoss) => {
                inner.lose_all();
                Restarted::SameLife
            }
            Some(Habit::DeniesItsLoss) => {
                inner.lose_all();
                Restarted::NewLife
            }
            Some(Habit::NeverRecovers) => {
                self.backend.is_dead.store(true, Ordering::SeqCst);
                self.backend = Arc::new(FlawedBackend::on(*flaw, inner.clone(), false));
                Restarted::SameLife
            }
            Some(Habit::CutsOffSilently) => {
                self.backend.listeners.lock().unwrap().iter().for_each(|listener| listener.cut_off());
                Restarted::SameLife
            }
            _ => {
                inner.new_life();
                Restarted::NewLife
            }
        }
    }
}
