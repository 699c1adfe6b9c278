//! The faults, what each is about, and the plan of a round: what is done to whom, and when. A seed makes a plan, and the same
//! seed the same plan.

use std::time::Duration;

use testkit::StoreKind;
use testkit::dice::Dice;
use testkit::proxy::Link;
use testkit::shim::Step;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Kill,
    Stop,
    Block,
    Beacon,
    Reset,
    Hang,
    Requests,
    Replies,
    Delay,
    StoreBlip,
    StoreDown,
    StorePause,
    DataLoss,
    Code,
    ClockForward,
    ClockBack,
    Suspend,
    DiskFull,
    StepDown,
    Tickets,
}

impl Fault {
    pub(crate) const ALL: [Self; 20] = [
        Self::Kill,
        Self::Stop,
        Self::Block,
        Self::Beacon,
        Self::Reset,
        Self::Hang,
        Self::Requests,
        Self::Replies,
        Self::Delay,
        Self::StoreBlip,
        Self::StoreDown,
        Self::StorePause,
        Self::DataLoss,
        Self::Code,
        Self::ClockForward,
        Self::ClockBack,
        Self::Suspend,
        Self::DiskFull,
        Self::StepDown,
        Self::Tickets,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Block => "block",
            Self::Beacon => "beacon",
            Self::Reset => "reset",
            Self::Hang => "hang",
            Self::Requests => "requests",
            Self::Replies => "replies",
            Self::Delay => "delay",
            Self::StoreBlip => "store-blip",
            Self::StoreDown => "store-down",
            Self::StorePause => "store-pause",
            Self::DataLoss => "data-loss",
            Self::Code => "code",
            Self::ClockForward => "clock-forward",
            Self::ClockBack => "clock-back",
            Self::Suspend => "suspend",
            Self::DiskFull => "disk-full",
            Self::StepDown => "step-down",
            Self::Tickets => "tickets",
        }
    }

    /// What is done, in words for people.
    pub(crate) fn words(self, kind: StoreKind) -> &'static str {
        match (self, kind) {
            (Self::Kill, _) => "`kill -9` of owners",
            (Self::Stop, _) => "SIGSTOP of owners beyond the lease, then SIGCONT",
            (Self::Block, _) => "the application's runtime is blocked beyond the lease",
            (Self::Beacon, _) => "the same where the application has to beat",
            (Self::Reset, _) => "an owner's link is reset and refused",
            (Self::Hang, _) => "an owner's link hangs both ways",
            (Self::Requests, _) => "an owner's requests vanish",
            (Self::Replies, _) => "replies to an owner vanish",
            (Self::Delay, _) => "links are late by up to 0.95 ttl",
            (Self::StoreBlip, _) => "the store is killed and started at once",
            (Self::StoreDown, _) => "the store is killed, and started after the lease",
            (Self::StorePause, StoreKind::Sqlite) => "another program holds the file's write lock",
            (Self::StorePause, _) => "the store is paused",
            (Self::DataLoss, StoreKind::Sqlite) => "the file is removed",
            (Self::DataLoss, StoreKind::Redis) => "all data is lost: wiped over a restart, or FLUSHALL",
            (Self::DataLoss, StoreKind::Postgres) => "all data is lost: DROP SCHEMA",
            (Self::Code, StoreKind::Postgres) => "the functions are dropped, and made again after the lease",
            (Self::Code, _) => "SCRIPT FLUSH",
            (Self::ClockForward, _) => "the store's clock steps forward while an owner's link hangs",
            (Self::ClockBack, _) => "the store's clock steps back",
            (Self::Suspend, StoreKind::Sqlite) => "an owner is suspended: its raw clock stands still",
            (Self::Suspend, _) => "an owner is suspended: its raw clock stands still, or BOOTTIME leaps",
            (Self::DiskFull, _) => "the store's disk is full",
            (Self::StepDown, _) => "step-downs, operators' wishes and departures",
            (Self::Tickets, _) => "K changes from 3 to 1, 2 and back",
        }
    }

    /// Why a store cannot have it.
    pub(crate) fn is_beside_the_point(self, kind: StoreKind) -> Option<&'static str> {
        match self {
            Self::Reset | Self::Hang | Self::Requests | Self::Replies | Self::Delay if !kind.is_served() => {
                Some("no link")
            }
            Self::StoreBlip | Self::StoreDown if !kind.is_served() => Some("no server"),
            Self::Code if !kind.is_served() => Some("no code in the store"),
            Self::ClockForward | Self::ClockBack if !kind.is_served() => Some("goes by BOOTTIME"),
            _ => None,
        }
    }

    /// Whether a process may be paused between its check and its write: then the token is checked, too.
    pub(crate) fn pauses(self) -> bool {
        matches!(self, Self::Stop | Self::Beacon | Self::Suspend)
    }

    /// Whether a store that forgets may begin its terms anew.
    pub(crate) fn forgets(self) -> bool {
        self == Self::DataLoss
    }

    /// How many rounds the full set has: by what is asked of it, and how often a round does it.
    pub(crate) fn rounds(self) -> u32 {
        match self {
            Self::Kill | Self::Stop => 34,
            Self::Reset | Self::Hang | Self::Requests | Self::Replies => 13,
            Self::StoreBlip | Self::StoreDown => 20,
            Self::Suspend => 12,
            _ => 10,
        }
    }
}

/// Which ticket a blow is about; whoever owns it is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) resource: u32,
    pub(crate) ticket: u32,
}

/// What is done to one worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Blow {
    Kill,
    Stop,
    /// The runtime blocks for so long.
    Block(Duration),
    Link(Link),
    /// It is stopped, and its raw clock has not counted that when it goes on.
    StandStill,
    /// BOOTTIME leaps by so much.
    Leap(Duration),
    /// It gives the resource up.
    StepDown,
    /// An operator asks for that.
    Ask,
    /// It leaves with all that it has; a newcomer comes.
    Leave,
}

/// What is done to the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Deed {
    Kill,
    Start,
    Pause,
    Resume,
    Forget,
    Empty,
    RemoveCode,
    RestoreCode,
    Clock(Step),
    FillDisk,
    FreeDisk,
    /// Every link is like this.
    Links(Link),
    /// K of the resources with several tickets.
    Tickets(u32),
}

/// One thing that is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    /// The blow of this number falls.
    Strike(usize, Target, Blow),
    /// What it did is undone.
    Heal(usize),
    Store(Deed),
    /// One that owns nothing or little goes, and a newcomer comes.
    Newcomer,
}

/// What is done in a round, and when, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) fault: Fault,
    pub(crate) acts: Vec<(Duration, Act)>,
    /// What is given up when all is well again: so ownerships move in every round, and the control has something to see.
    pub(crate) afterwards: [Target; 2],
}

/// Who competes for what: what plans are made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) kind: StoreKind,
    pub(crate) ttl: Duration,
    /// The tickets of each resource.
    pub(crate) tickets: &'a [u32],
    /// Those for which `tenure run` competes, too.
    pub(crate) run: &'a [u32],
}

impl Plan {
    pub(crate) fn of(fault: Fault, seed: u64, setting: &Setting<'_>) -> Self {
        let mut draft = Draft { dice: Dice::new(mixed(seed)), setting, acts: Vec::new(), blows: 0 };
        draft.fill(fault);
        draft.acts.sort_by_key(|(at, _)| *at);
        let afterwards = [draft.target(), draft.target()];
        Self { fault, acts: draft.acts, afterwards }
    }

    /// How many times the fault happens.
    pub(crate) fn blows(&self) -> u32 {
        let is_about_clocks = matches!(self.fault, Fault::ClockForward | Fault::ClockBack);
        let counts = |act: &&(Duration, Act)| match act.1 {
            Act::Store(Deed::Clock(_)) => true,
            _ if is_about_clocks => false,
            Act::Strike(..) => self.fault != Fault::DataLoss,
            Act::Store(deed) => !matches!(
                deed,
                Deed::Start | Deed::Resume | Deed::RestoreCode | Deed::FreeDisk | Deed::Links(Link::Pass)
            ),
            Act::Heal(_) | Act::Newcomer => false,
        };
        u32::try_from(self.acts.iter().filter(counts).count()).unwrap_or(u32::MAX)
    }
}

/// Seeds of one run lie side by side; the dice want them apart.
fn mixed(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

struct Draft<'a> {
    dice: Dice,
    setting: &'a Setting<'a>,
    acts: Vec<(Duration, Act)>,
    blows: usize,
}

impl Draft<'_> {
    fn fill(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.strikes(3, 0, 60, |_| (Blow::Kill, None)),
            Fault::Stop => self.strikes(3, 0, 60, |draft| (Blow::Stop, Some(draft.part(130, 200)))),
            Fault::Block | Fault::Beacon => self.strikes(2, 0, 40, |draft| {
                let span = draft.part(130, 200);
                (Blow::Block(span), Some(span))
            }),
            Fault::Reset => self.cuts(Link::Refuse),
            Fault::Hang => self.cuts(Link::Hang),
            Fault::Requests => self.cuts(Link::DropRequests),
            Fault::Replies => self.cuts(Link::DropReplies),
            Fault::Delay => self.delays(),
            Fault::StoreBlip => {
                let at = self.part(10, 60);
                self.store(at, Deed::Kill);
                self.store(at, Deed::Start);
                self.newcomer(at);
            }
            Fault::StoreDown => self.between(Deed::Kill, Deed::Start, 110, 180),
            Fault::StorePause => {
                let short = self.dice.below(2) == 0;
                let (least, most) = if short { (10, 50) } else { (110, 200) };
                self.between(Deed::Pause, Deed::Resume, least, most);
            }
            Fault::DataLoss => {
                let at = self.part(10, 60);
                let deed = if self.dice.below(2) == 0 { Deed::Forget } else { Deed::Empty };
                // In every other round an owner cannot hear of it, and believes on: only a quarantine keeps others out.
                let deaf = self.setting.kind.is_served() && self.dice.below(2) == 0;
                if deaf {
                    let (target, lasts) = (self.target(), self.part(120, 190));
                    let before = at.saturating_sub(Duration::from_millis(10));
                    self.acts.push((before, Act::Strike(self.blows, target, Blow::Link(Link::Hang))));
                    self.acts.push((before + lasts, Act::Heal(self.blows)));
                    self.blows += 1;
                }
                self.store(at, deed);
                self.newcomer(at + Duration::from_millis(20));
                self.newcomer(at + self.setting.ttl);
            }
            Fault::Code => self.between(Deed::RemoveCode, Deed::RestoreCode, 110, 180),
            Fault::ClockForward => self.clock(Step::Forward),
            Fault::ClockBack => self.clock(Step::Back),
            Fault::Suspend => self.strikes(2, 0, 50, |draft| {
                let leaps = draft.setting.kind.is_served() && draft.dice.below(2) == 0;
                match leaps {
                    true => (Blow::Leap(draft.setting.ttl * 3), None),
                    false => (Blow::StandStill, Some(draft.part(130, 200))),
                }
            }),
            Fault::DiskFull => self.between(Deed::FillDisk, Deed::FreeDisk, 110, 180),
            Fault::StepDown => {
                self.strikes(6, 0, 60, |draft| match draft.dice.below(4) {
                    0 | 1 => (Blow::StepDown, None),
                    2 => (Blow::Ask, None),
                    _ => (Blow::Leave, None),
                });
            }
            Fault::Tickets => {
                let fewer = 1 + u32::try_from(self.dice.below(2)).unwrap_or(0);
                let (at, again) = (self.part(5, 20), self.part(150, 200));
                self.store(at, Deed::Tickets(fewer));
                self.store(again, Deed::Tickets(3));
            }
        }
    }

    /// So much of a ttl, in percent, by chance.
    fn part(&mut self, least: u32, most: u32) -> Duration {
        let ttl = self.setting.ttl;
        self.dice.span(ttl * least / 100, ttl * most / 100)
    }

    fn target(&mut self) -> Target {
        let below = |dice: &mut Dice, bound: usize| {
            u32::try_from(dice.below(bound.max(1) as u64)).unwrap_or_default()
        };
        let run = self.setting.run;
        // One in four strikes a `tenure run`, if there is one.
        let resource = match self.dice.below(4) {
            0 if !run.is_empty() => run[below(&mut self.dice, run.len()) as usize],
            _ => below(&mut self.dice, self.setting.tickets.len()),
        };
        let ticket = below(&mut self.dice, self.setting.tickets[resource as usize] as usize);
        Target { resource, ticket }
    }

    /// So many blows, each between these parts of a ttl, and undone after a while where there is something to undo.
    fn strikes(
        &mut self,
        count: u32,
        from: u32,
        to: u32,
        blow: impl Fn(&mut Self) -> (Blow, Option<Duration>),
    ) {
        for _ in 0..count {
            let (at, target) = (self.part(from, to), self.target());
            let (blow, lasts) = blow(self);
            self.acts.push((at, Act::Strike(self.blows, target, blow)));
            if let Some(lasts) = lasts {
                self.acts.push((at + lasts, Act::Heal(self.blows)));
            }
            self.blows += 1;
        }
    }

    /// Links of two owners go bad for longer than the lease; somebody comes meanwhile.
    fn cuts(&mut self, link: Link) {
        self.strikes(2, 0, 40, |draft| (Blow::Link(link), Some(draft.part(120, 190))));
        let at = self.part(40, 120);
        self.newcomer(at);
    }

    fn delays(&mut self) {
        let (at, back) = (self.part(5, 20), self.part(220, 320));
        let (requests, replies) = match self.dice.below(3) {
            0 => (self.part(5, 95), Duration::ZERO),
            1 => (Duration::ZERO, self.part(5, 95)),
            _ => (self.part(5, 48), self.part(5, 47)),
        };
        self.store(at, Deed::Links(Link::Delay { requests, replies }));
        self.store(back, Deed::Links(Link::Pass));
        self.newcomer(at * 2);
    }

    fn clock(&mut self, step: impl Fn(Duration) -> Step) {
        let at = self.part(20, 40);
        let by = self.dice.span(Duration::from_secs(5), Duration::from_secs(90));
        let target = self.target();
        self.acts.push((at, Act::Strike(self.blows, target, Blow::Link(Link::Hang))));
        self.store(at + Duration::from_millis(20), Deed::Clock(step(by)));
        let lasts = self.part(130, 180);
        self.acts.push((at + lasts, Act::Heal(self.blows)));
        self.blows += 1;
    }

    /// Something is done, and undone after this part of a ttl.
    fn between(&mut self, one: Deed, other: Deed, least: u32, most: u32) {
        let (at, lasts) = (self.part(10, 60), self.part(least, most));
        self.store(at, one);
        self.store(at + lasts, other);
        self.newcomer(at + lasts / 2);
    }

    fn store(&mut self, at: Duration, deed: Deed) {
        self.acts.push((at, Act::Store(deed)));
    }

    fn newcomer(&mut self, at: Duration) {
        self.acts.push((at, Act::Newcomer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting<'_> =
        Setting { kind: StoreKind::Redis, ttl: Duration::from_secs(1), tickets: &[1, 1, 3, 3], run: &[0] };

    #[test]
    fn a_seed_makes_the_same_plan_again_and_another_one_another() {
        for fault in Fault::ALL {
            let plan = Plan::of(fault, 7, &SETTING);
            assert_eq!(plan, Plan::of(fault, 7, &SETTING), "{fault:?}");
            assert_ne!(plan, Plan::of(fault, 8, &SETTING), "{fault:?}");
        }
    }

    #[test]
    fn the_full_set_does_each_as_often_as_is_asked_of_it() {
        let count = |faults: &[Fault]| -> u32 {
            let of = |fault: Fault| {
                (0..fault.rounds()).map(move |seed| Plan::of(fault, seed.into(), &SETTING).blows())
            };
            faults.iter().copied().flat_map(of).sum()
        };
        assert!(count(&[Fault::Kill]) >= 100);
        assert!(count(&[Fault::Stop]) >= 100);
        assert!(count(&[Fault::Reset, Fault::Hang, Fault::Requests, Fault::Replies]) >= 100);
        assert!(count(&[Fault::StoreBlip, Fault::StoreDown]) >= 40);
        assert!(count(&[Fault::ClockForward, Fault::ClockBack]) >= 20);
        assert!(count(&[Fault::DiskFull]) >= 10);
    }

    #[test]
    fn what_is_done_is_undone() {
        for (fault, seed) in Fault::ALL.into_iter().flat_map(|fault| (0..50).map(move |seed| (fault, seed))) {
            let plan = Plan::of(fault, seed, &SETTING);
            let has = |deed| plan.acts.iter().any(|(_, act)| *act == Act::Store(deed));
            let pairs = [
                (Deed::Kill, Deed::Start),
                (Deed::Pause, Deed::Resume),
                (Deed::FillDisk, Deed::FreeDisk),
                (Deed::RemoveCode, Deed::RestoreCode),
            ];
            assert!(pairs.into_iter().all(|(one, other)| has(one) == has(other)), "{plan:?}");
            for (at, act) in &plan.acts {
                if let Act::Strike(number, _, Blow::Stop | Blow::StandStill | Blow::Link(_)) = act {
                    let heals = |other: &(Duration, Act)| other.1 == Act::Heal(*number) && other.0 > *at;
                    assert!(plan.acts.iter().any(heals), "{plan:?}");
                }
            }
        }
    }
}
