//! The records that a store keeps, as the rules see them. How they are written down is the codec's business.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::keys::{Key, Version};
use crate::job::{JobCounts, JobRecord, Occurrence};
use crate::message::{Closing, Grant, Incarnation, LeaseId, Notice, Seq, Term, Ticket, Token, Wish};
use crate::moment::{Moment, StoreTime};
use crate::names::{Label, Metadata, Plan, ResourceName};

/// A point in time in a record. Absent: when this version of the record was written. Whoever reads a record fills in
/// its stamp; only a store without a clock leaves it absent.
pub type Time = Option<StoreTime>;

/// Fields that a newer version of the library wrote, by name, as the codec had them. Every writer keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::box_collection)] // Nearly always there is none, and then it is one word.
pub struct Rest(Option<Box<BTreeMap<String, Arc<str>>>>);

impl Rest {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Arc<str>)> {
        self.0.iter().flat_map(|fields| fields.iter())
    }
}

impl FromIterator<(String, Arc<str>)> for Rest {
    fn from_iter<T: IntoIterator<Item = (String, Arc<str>)>>(fields: T) -> Self {
        let fields: BTreeMap<String, Arc<str>> = fields.into_iter().collect();
        Self((!fields.is_empty()).then(|| Box::new(fields)))
    }
}

/// What concerns the whole namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meta {
    /// The life in which the last contact was.
    pub life: Incarnation,
    /// The longest ttl in use: so long nothing is granted after data may have been lost.
    pub longest: Duration,
    /// Set while nothing is granted.
    pub quarantine: Option<Quarantine>,
    /// Every token is above it.
    pub floor: Token,
    /// Names the channels: a stranger cannot guess them.
    pub secret: u128,
    /// What this version does not know.
    pub rest: Rest,
}

impl Meta {
    /// The quarantine of a namespace that was new to whoever made it: it is not needed if the store has lost nothing.
    pub(super) fn new_quarantine(&self) -> Option<&Quarantine> {
        self.quarantine.as_ref().filter(|quarantine| quarantine.from.is_none())
    }
}

/// Nothing is granted until one longest ttl has passed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quarantine {
    /// Since when.
    pub since: Time,
    /// Drawn at random when it began: tells two of them apart.
    pub mark: u64,
    /// The life from which somebody came.
    pub from: Option<Incarnation>,
    /// What this version does not know.
    pub rest: Rest,
}

/// Which ttls are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ttls {
    /// At most [`MOST_TTLS`].
    pub uses: Vec<TtlUse>,
    /// What this version does not know.
    pub rest: Rest,
}

/// How many different ttls are noted: the longest ones.
pub const MOST_TTLS: usize = 16;

/// A ttl, and when a lease was last opened with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TtlUse {
    /// How long.
    pub ttl: Duration,
    /// The last time.
    pub used: Time,
}

/// A worker's lease. It lives for its ttl from when it was renewed, and is dead for ever once it is ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// How long it lives without a renewal.
    pub ttl: Duration,
    /// What people call the worker.
    pub label: Label,
    /// When it was opened.
    pub opened: Time,
    /// When it was opened or renewed last. Whoever else writes the record leaves it as it was.
    pub renewed: Time,
    /// The number of the request that did.
    pub seq: Seq,
    /// What its worker has to be told; at most [`MOST_NOTICES`], evictions apart.
    pub notices: Vec<Notice>,
    /// There are more notices than fit: the wishes stand on the seats.
    pub all: bool,
    /// Set when it is dead.
    pub ended: Option<Ended>,
    /// What this version does not know.
    pub rest: Rest,
}

/// How many notices a lease holds.
pub const MOST_NOTICES: usize = 16;

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ended {
    /// When.
    pub at: Time,
    /// Why.
    pub why: Closing,
    /// Everything it held was released before.
    pub clean: bool,
}

/// What a worker says of itself when it opens a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Info {
    /// What it tells the others.
    pub metadata: Metadata,
    /// How its death can be proved, where it can be.
    pub witness: Option<Arc<str>>,
    /// What this version does not know.
    pub rest: Rest,
}

/// A resource: owners, queue, job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// How many tickets it has: K.
    pub tickets: u32,
    /// Which lease set K.
    pub set_by: SetBy,
    /// The number of the latest ownership.
    pub term: Term,
    /// The latest token.
    pub token: Token,
    /// How many have joined the queue so far.
    pub arrivals: u64,
    /// The tickets that are held, by number.
    pub seats: Vec<Seat>,
    /// When a ticket was freed last.
    pub freed: Time,
    /// How often one was freed.
    pub frees: u64,
    /// Who waits, in order; at most [`MOST_WAITERS`] + K.
    pub queue: Vec<Place>,
    /// The job that is attached to it.
    pub job: Option<Box<Job>>,
    /// What this version does not know.
    pub rest: Rest,
}

/// How many may wait in the record, beside one for each ticket. Behind them a worker looks once per ttl.
pub const MOST_WAITERS: usize = 64;

/// Which lease set K: of two leases the one that was opened later counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetBy {
    /// When it was opened.
    pub opened: Time,
    /// Which.
    pub lease: LeaseId,
}

/// A ticket that is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat {
    /// By whom.
    pub lease: LeaseId,
    /// Its number, term and token.
    pub grant: Grant,
    /// Since when.
    pub since: Time,
    /// What its owner is asked to do.
    pub wish: Option<Wish>,
    /// What this version does not know.
    pub rest: Rest,
}

/// A place in the queue: those whom an operator named, the last named first; then by priority; then by arrival.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Who waits.
    pub lease: LeaseId,
    /// Larger is served first.
    pub priority: i32,
    /// Zero, or the number of arrivals when an operator named it.
    pub named: u64,
    /// The number of its arrival.
    pub arrival: u64,
    /// How long it leaves a free ticket to the one before it.
    pub step: Duration,
    /// What this version does not know.
    pub rest: Rest,
}

impl Place {
    /// What the queue is sorted by.
    #[must_use]
    pub fn order(&self) -> (core::cmp::Reverse<u64>, core::cmp::Reverse<i32>, u64) {
        (core::cmp::Reverse(self.named), core::cmp::Reverse(self.priority), self.arrival)
    }
}

/// The job of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// Its schedule, as its latest owner has it.
    pub plan: Plan,
    /// Up to here every occurrence is claimed, or does not count.
    pub through: Occurrence,
    /// How often what has happened.
    pub counts: JobCounts,
    /// The latest run.
    pub latest: Option<Run>,
    /// What this version does not know.
    pub rest: Rest,
}

/// One run of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// What became of it.
    pub record: JobRecord,
    /// When it began, by the clock that does not step with the wall clock.
    pub began: Time,
}

/// The runs before the latest, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Runs {
    /// At most [`JOB_RECORDS`](crate::JOB_RECORDS) - 1.
    pub runs: Vec<JobRecord>,
    /// What this version does not know.
    pub rest: Rest,
}

/// The value of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // Each is named like the record.
pub enum Value {
    Meta(Meta),
    Ttls(Ttls),
    Lease(Lease),
    Info(Info),
    Resource(Resource),
    Runs(Runs),
}

impl Value {
    /// Calls `on` with every time in the record.
    fn each_time(&mut self, on: &mut dyn FnMut(&mut Time)) {
        match self {
            Self::Meta(meta) => meta.quarantine.iter_mut().for_each(|quarantine| on(&mut quarantine.since)),
            Self::Ttls(ttls) => ttls.uses.iter_mut().for_each(|used| on(&mut used.used)),
            Self::Lease(lease) => {
                on(&mut lease.renewed);
                lease.ended.iter_mut().for_each(|ended| on(&mut ended.at));
            }
            Self::Resource(resource) => {
                on(&mut resource.freed);
                resource.seats.iter_mut().for_each(|seat| on(&mut seat.since));
                let latest = resource.job.iter_mut().filter_map(|job| job.latest.as_mut());
                latest.for_each(|run| on(&mut run.began));
            }
            Self::Info(_) | Self::Runs(_) => {}
        }
    }

    /// What tells one renewal of a lease, one freeing of a ticket or one quarantine from the next.
    fn mark(&self) -> u64 {
        match self {
            Self::Lease(lease) => lease.seq.0,
            Self::Resource(resource) => resource.frees,
            Self::Meta(meta) => meta.quarantine.as_ref().map_or(0, |quarantine| quarantine.mark),
            _ => 0,
        }
    }
}

/// A record as a process has seen it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its version; [`Version::NONE`] if it does not exist.
    pub version: Version,
    /// How often it was written: orders two versions that this process has seen.
    pub revision: u64,
    /// When the lease was renewed, or the quarantine began, as the store has it: that is written back, whatever it counts
    /// for here.
    stored: Time,
    /// What it says; nothing if it does not exist.
    pub value: Option<Arc<Value>>,
    /// When it was seen.
    pub seen: Seen,
}

/// The order of what a process sends and hears. Two readings of a clock can be equal, also when one of them was before
/// the other; these never are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(pub u64);

/// When a process has seen a version of a record, on its own clocks and on the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Where in the order of what this process did it was asked for. Records that came by themselves, with a hint,
    /// were never asked for.
    pub asked: Option<Order>,
    /// Where in that order it arrived last.
    pub arrived: Order,
    /// When this version first arrived.
    pub first_at: Moment,
    /// When it arrived last.
    pub at: Moment,
    /// What the store's clock showed then.
    pub now: Option<StoreTime>,
    /// The least that it has shown with this version, and when, if a time in the record was after it: the clock had gone
    /// back. No time counts for more, and none is older than it has been since.
    pub turned_back: Option<(StoreTime, Moment)>,
    /// Since when it has been seen with the renewal, the free ticket or the quarantine that it shows.
    pub marked_at: Moment,
}

/// A record on its way from the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// Which.
    pub key: Key,
    /// [`Version::NONE`] if it does not exist.
    pub version: Version,
    /// How often it was written.
    pub revision: u64,
    /// When it was written.
    pub stamp: Option<StoreTime>,
    /// What it says.
    pub value: Option<Value>,
}

impl Found {
    /// As it arrives when the store's clock shows `now`: absent times are filled in, times after `now` count as `now`.
    #[must_use]
    pub fn timed(self, now: Option<StoreTime>) -> Self {
        self.turned_back(now).0
    }

    /// The same, and whether there was a time after `now`.
    fn turned_back(mut self, now: Option<StoreTime>) -> (Self, bool) {
        let mut after = false;
        let mut latest = |time: Time| match (time, now) {
            (Some(time), Some(now)) => {
                after |= time > now;
                Some(time.min(now))
            }
            (time, _) => time,
        };
        // Which lease was opened later stays so, whatever the clock shows now.
        if let Some(
            Value::Lease(Lease { opened, .. })
            | Value::Resource(Resource { set_by: SetBy { opened, .. }, .. }),
        ) = &mut self.value
        {
            *opened = opened.or(self.stamp);
        }
        self.stamp = latest(self.stamp);
        if let Some(value) = &mut self.value {
            value.each_time(&mut |time| *time = latest(time.or(self.stamp)));
            if let Value::Lease(lease) = value {
                lease.end_in_time();
            }
        }
        (self, after)
    }
}

impl Record {
    /// A record as it arrives.
    #[must_use]
    pub(super) fn arrived(found: Found, seen: Seen) -> Self {
        let stored = match &found.value {
            Some(Value::Lease(lease)) => lease.renewed.or(found.stamp),
            Some(Value::Meta(Meta { quarantine: Some(quarantine), .. })) => quarantine.since.or(found.stamp),
            _ => None,
        };
        let (Found { version, revision, value, .. }, after) = found.turned_back(seen.now);
        let turned_back = seen.now.filter(|_| after).map(|now| (now, seen.at));
        let seen = Seen { turned_back, ..seen };
        Self { version, revision, stored, value: value.map(Arc::new), seen }
    }

    /// A lease of this record, as it is written back by somebody who does not renew it.
    pub(super) fn lease_as_stored(&self, lease: Lease) -> Lease {
        Lease { renewed: self.stored, ..lease }
    }

    /// What this record says of the namespace, as it is written back by somebody who begins no quarantine.
    pub(super) fn meta_as_stored(&self, meta: &Meta) -> Meta {
        let stored = |quarantine: &Quarantine| Quarantine { since: self.stored, ..quarantine.clone() };
        Meta { quarantine: meta.quarantine.as_ref().map(stored), ..meta.clone() }
    }

    /// The store's clock shows this now, in an answer that was asked for after the record was seen. If that is earlier than
    /// it was then, the clock went back: times after it count as it, from now on.
    pub(super) fn turn_back(&mut self, at: Moment, now: StoreTime) {
        if self.seen.now.is_none_or(|seen| seen <= now) {
            return;
        }
        self.seen = Seen { at, now: Some(now), ..self.seen };
        if let Some(value) = &mut self.value {
            let mut after = false;
            let mut turn_back = |time: &mut Time| {
                after |= *time > Some(now);
                *time = time.map(|time| time.min(now));
            };
            Arc::make_mut(value).each_time(&mut turn_back);
            if after {
                self.seen.turned_back = Some((now, at));
            }
        }
    }

    /// This record, if it is not older than the one that is known already. The same version keeps when it was first
    /// seen, and the least that its times have counted for.
    #[must_use]
    pub fn after(self, known: Option<&Self>) -> Option<Self> {
        let Some(known) = known else { return Some(self) };
        if self.version == known.version {
            let seen = Seen { first_at: known.seen.first_at, marked_at: known.seen.marked_at, ..self.seen };
            let seen = Seen { asked: seen.asked.or(known.seen.asked), ..seen };
            let further_back = match (seen.turned_back, known.seen.turned_back) {
                (Some((new, _)), Some((known, _))) => new < known,
                (new, _) => new.is_some(),
            };
            if further_back {
                return Some(Self { seen, ..self });
            }
            let seen = Seen { turned_back: known.seen.turned_back, ..seen };
            return Some(Self { value: known.value.clone(), seen, ..self });
        }
        let asked_later = self.seen.asked.is_some_and(|asked| asked > known.seen.arrived);
        if !asked_later && self.revision <= known.revision {
            return None;
        }
        let same_mark = match (&self.value, &known.value) {
            (Some(new), Some(old)) => new.mark() == old.mark(),
            _ => false,
        };
        let marked_at = if same_mark { known.seen.marked_at } else { self.seen.marked_at };
        Some(Self { seen: Seen { marked_at, ..self.seen }, ..self })
    }
}

macro_rules! typed {
    ($($name:ident $variant:ident)+) => {
        impl Record {
            $(
                /// What it says, if it is such a record.
                #[must_use]
                pub fn $name(&self) -> Option<&$variant> {
                    match self.value.as_deref() {
                        Some(Value::$variant(value)) => Some(value),
                        _ => None,
                    }
                }
            )+
        }
        $(
            impl From<$variant> for Value {
                fn from(value: $variant) -> Self {
                    Self::$variant(value)
                }
            }
        )+
    };
}

typed!(meta Meta ttls Ttls lease Lease info Info resource Resource runs Runs);

/// The number of the last renewal of a lease that nobody renews: it was lost, and written again for the seats that name it.
pub(super) const ADOPTED: Seq = Seq((1 << 53) - 2);

impl Lease {
    /// Whether it was lost, and written again only to run out.
    pub(super) fn is_adopted(&self) -> bool {
        self.seq == ADOPTED
    }

    /// When it runs out unless it is renewed; absent where the store has no clock.
    pub(super) fn runs_out_at(&self) -> Time {
        self.renewed.map(|renewed| renewed + self.ttl)
    }

    /// One that was ended after it ran out has ended then.
    fn end_in_time(&mut self) {
        let run_out = self.runs_out_at();
        if let Some(ended) = &mut self.ended
            && let (Some(at), Some(run_out)) = (ended.at, run_out)
        {
            ended.at = Some(at.min(run_out));
        }
    }
}

impl Resource {
    /// A resource that nobody has claimed yet.
    #[must_use]
    pub fn new(tickets: u32, set_by: SetBy) -> Self {
        Self {
            tickets,
            set_by,
            term: Term(0),
            token: Token(0),
            arrivals: 0,
            seats: Vec::new(),
            freed: None,
            frees: 0,
            queue: Vec::new(),
            job: None,
            rest: Rest::new(),
        }
    }

    /// The ticket that this lease holds.
    #[must_use]
    pub fn seat_of(&self, lease: LeaseId) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.lease == lease)
    }

    /// The ticket that is held under this token.
    #[must_use]
    pub fn seat_under(&self, token: Token) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.grant.token == token)
    }

    /// Whether this lease waits.
    #[must_use]
    pub fn waits(&self, lease: LeaseId) -> bool {
        self.queue.iter().any(|place| place.lease == lease)
    }

    /// How many more owners there may be.
    #[must_use]
    pub fn free(&self) -> usize {
        (self.tickets as usize).saturating_sub(self.seats.len())
    }

    /// The lowest free number, if one may be given.
    #[must_use]
    pub fn lowest_free(&self) -> Option<Ticket> {
        let held = |ticket: &u32| self.seats.iter().any(|seat| seat.grant.ticket.0 == *ticket);
        (0..self.tickets).find(|ticket| !held(ticket)).map(Ticket)
    }

    pub(super) fn vacate(&mut self, token: Token, at: Time) {
        self.seats.retain(|seat| seat.grant.token != token);
        self.freed = at;
        self.frees = self.frees.saturating_add(1);
    }

    pub(super) fn leave_queue(&mut self, lease: LeaseId) {
        self.queue.retain(|place| place.lease != lease);
    }

    /// Queues the lease in order.
    pub(super) fn join(&mut self, lease: LeaseId, priority: i32, named: u64, step: Duration) {
        self.leave_queue(lease);
        self.arrivals = self.arrivals.saturating_add(1);
        let place = Place { lease, priority, named, arrival: self.arrivals, step, rest: Rest::new() };
        let at = self.queue.partition_point(|other| other.order() < place.order());
        self.queue.insert(at, place);
    }

    /// How many waiters the record may hold.
    #[must_use]
    pub fn most_waiters(&self) -> usize {
        MOST_WAITERS + self.tickets as usize
    }
}

/// What a worker is told about one of its ownerships. A stronger notice that stands already stays, and so does one about a
/// later ownership: whoever tells of an earlier one has not seen its end.
pub(super) fn notify(lease: &mut Lease, resource: &ResourceName, token: Token, wish: Wish) {
    let room = lease.notices.len() < MOST_NOTICES;
    match lease.notices.iter_mut().find(|notice| notice.resource == *resource) {
        Some(standing) if standing.token > token => {}
        Some(standing) if standing.token == token => standing.wish = standing.wish.max(wish),
        Some(standing) => (standing.token, standing.wish) = (token, wish),
        // An eviction is told by name however many there are: its seat may still stand while the worker looks.
        None if room || wish == Wish::Evicted => {
            lease.notices.push(Notice { resource: resource.clone(), token, wish });
        }
        None => lease.all = true,
    }
}

/// Whether the worker was told of this wish, or of one about a later ownership, or will look at all of them.
pub(super) fn is_told(lease: &Lease, resource: &ResourceName, token: Token, wish: Wish) -> bool {
    let told = |notice: &Notice| notice.resource == *resource && (notice.token, notice.wish) >= (token, wish);
    lease.all || lease.notices.iter().any(told)
}
