//! Leases: opened, renewed, closed, and ended by others when they have run out or their worker is proved dead.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::change::{Change, Decision, Signal};
use super::keys::{Key, Version, Window};
use super::records::{ADOPTED, Ended, Info, Lease, MOST_TTLS, Meta, Record, Rest, TtlUse, Ttls};
use super::view::{Standing, View, run_out};
use crate::message::{Closing, LeaseId, Notice, Said, Seq, Token};
use crate::moment::StoreTime;
use crate::names::{Label, Metadata, ResourceName};
use crate::planted::Bug;
use crate::timing::LONGEST_TTL;

/// A ttl that was noted so lately need not be noted again.
const NOTED: Duration = Duration::from_secs(60);

/// A ttl that no lease uses is forgotten so long after it was noted.
pub(super) const TTL_LINGERS: Duration = Duration::from_secs(3600);
/// A lease that released everything before it ended is deleted after this: a late `open` must not make it again.
const KEPT: Duration = Duration::from_secs(3600);
/// One that did not may still be named by a resource.
const KEPT_LONG: Duration = Duration::from_secs(30 * 24 * 3600);

/// Which ttls a look at all leases has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LookedAtLeases {
    /// Those of leases that are not ended.
    pub in_use: BTreeSet<Duration>,
    /// The version of the namespace's own record before the look.
    pub meta: Version,
    /// That of the record of the ttls.
    pub ttls: Version,
    /// A ttl stays for so long after it was noted; an hour, but for tests.
    pub linger: Duration,
}

impl LookedAtLeases {
    /// A look that began when these versions had been read.
    #[must_use]
    pub fn since(meta: Version, ttls: Version, in_use: BTreeSet<Duration>) -> Self {
        Self { in_use, meta, ttls, linger: TTL_LINGERS }
    }
}

/// What a worker says when it opens a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opening<'a> {
    pub(super) id: LeaseId,
    pub(super) ttl: Duration,
    pub(super) label: &'a Label,
    pub(super) metadata: &'a Metadata,
    pub(super) witness: Option<&'a Arc<str>>,
}

/// Creates the lease. Repeating it changes nothing. It is said to be open only when its ttl is noted: after that nobody
/// can forget the ttl without having seen the lease.
pub(super) fn open(view: View<'_>, opening: &Opening<'_>) -> Decision<Said> {
    let (lease_key, info_key) = (Key::Lease(opening.id), Key::Info(opening.id));
    let known = [&lease_key, &info_key, &Key::Ttls].map(|key| view.get(key));
    let [Some(lease), Some(info), Some(ttls)] = known else {
        return Decision::Read([lease_key, info_key, Key::Ttls].into());
    };
    let is_there = match lease.lease() {
        // Somebody may have ended it, or forgotten its ttl, since it was seen.
        Some(_) if !view.is_fresh(lease) || !view.is_fresh(ttls) => {
            return Decision::Read([lease_key, Key::Ttls].into());
        }
        Some(lease) if lease.ended.is_some() || lease.is_adopted() => return Decision::Say(Said::Gone),
        lease => lease.is_some(),
    };
    let Some((meta_record, meta)) = view.meta() else { return Decision::Read([Key::Meta].into()) };
    if let Some(change) = note_ttl(&view, opening.ttl, (meta_record, meta), ttls) {
        return Decision::First(alloc::vec![change]);
    }
    if is_there {
        return Decision::Say(Said::Opened);
    }
    let worker = Lease {
        ttl: opening.ttl,
        label: opening.label.clone(),
        // Without a clock nothing stamps it. Which of two leases is the later one needs no more than a wall clock.
        opened: lease.seen.now.is_none().then(|| StoreTime::from_micros(view.wall)),
        renewed: None,
        seq: Seq(0),
        mark: 0,
        notices: Vec::new(),
        more_notices: false,
        ended: None,
        rest: Rest::new(),
    };
    let said =
        Info { metadata: opening.metadata.clone(), witness: opening.witness.cloned(), rest: Rest::new() };
    let change = Change::of(info_key, info.version, said)
        .and(lease_key, Version::NONE, worker)
        .expecting(Key::Meta, meta_record.version)
        .expecting(Key::Ttls, ttls.version);
    Decision::commit(change, Said::Opened)
}

/// Notes that a ttl is in use; nothing if that was noted lately. The record of the whole namespace comes first: so the
/// longest ttl is never too short.
fn note_ttl(
    view: &View<'_>,
    ttl: Duration,
    (meta_record, meta): (&Record, &Meta),
    record: &Record,
) -> Option<Change> {
    let mut ttls = record.ttls().cloned().unwrap_or_default();
    let longest = meta.longest.max(ttl).min(LONGEST_TTL);
    let noted = ttls.uses.iter().find(|used| used.ttl == ttl);
    let lately = noted.is_some_and(|used| view.ago(record, used.used, record.seen.first_at) < NOTED);
    if lately && longest == meta.longest {
        return None;
    }
    let noted = noted.is_some();
    use_ttl(&mut ttls, ttl);
    // Another process may be about to lower `longest` because this ttl is not noted. Writing `meta` makes that commit
    // conflict.
    if noted && longest == meta.longest {
        let change = Change::of(Key::Ttls, record.version, ttls);
        return Some(change.expecting(Key::Meta, meta_record.version));
    }
    let meta = match view.planted.has(Bug::NewTtlAgesQuarantine) {
        true => meta.clone(),
        false => meta_record.meta_as_stored(meta),
    };
    let raised = Change::of(Key::Meta, meta_record.version, Meta { longest, ..meta });
    Some(raised.and(Key::Ttls, record.version, ttls))
}

fn use_ttl(ttls: &mut Ttls, ttl: Duration) {
    match ttls.uses.iter_mut().find(|used| used.ttl == ttl) {
        Some(used) => used.used = None,
        None => {
            if ttls.uses.len() >= MOST_TTLS {
                // A shorter one says nothing that the others do not say.
                ttls.uses.sort_by_key(|used| used.ttl);
                ttls.uses.remove(0);
            }
            ttls.uses.push(TtlUse { ttl, used: None });
        }
    }
}

/// Forgets ttls that no lease uses and that were noted more than an hour ago, in two steps with a look at all leases
/// before each: first they are no longer noted, then the longest ttl falls. A worker that opens a lease and finds its
/// ttl missing notes it again. A worker that found it noted has opened its lease before the second look, which sees it.
/// The ttls in use are noted again, so that no process looks for another hour.
pub(super) fn drop_unused(view: &View<'_>, looked: &LookedAtLeases) -> Option<Change> {
    let (meta_record, meta) = view.meta()?;
    let record = view.get(&Key::Ttls)?;
    let ttls = record.ttls()?;
    let unchanged = (meta_record.version, record.version) == (looked.meta, looked.ttls);
    if !unchanged || meta.quarantine.is_some() {
        return None;
    }
    let in_use = |ttl| looked.in_use.contains(&ttl) && !view.planted.has(Bug::TtlDroppedInUse);
    let lately = |used: &TtlUse| view.ago(record, used.used, record.seen.first_at) < looked.linger;
    let mut kept = ttls.clone();
    kept.uses.retain(|used| lately(used) || in_use(used.ttl));
    for ttl in looked.in_use.iter().copied().filter(|ttl| in_use(*ttl) && *ttl <= meta.longest) {
        let noted = kept.uses.iter().find(|used| used.ttl == ttl);
        if !noted.is_some_and(lately) && (noted.is_some() || kept.uses.len() < MOST_TTLS) {
            use_ttl(&mut kept, ttl);
        }
    }
    if kept != *ttls {
        let change = Change::of(Key::Ttls, record.version, kept);
        return Some(change.expecting(Key::Meta, meta_record.version));
    }
    // A lease whose ttl is not noted, because there were too many, counts as well.
    let noted = kept.uses.iter().map(|used| used.ttl);
    let longest =
        noted.chain(looked.in_use.iter().copied().filter(|ttl| in_use(*ttl))).max().unwrap_or_default();
    if longest >= meta.longest {
        return None;
    }
    // The ttls are written, too: nobody has noted one in between, also where records are swapped one by one.
    let meta = Meta { longest, ..meta.clone() };
    Some(Change::of(Key::Ttls, record.version, kept).and(Key::Meta, meta_record.version, meta))
}

/// A request to renew a lease.
pub(super) struct Renewal {
    pub(super) id: LeaseId,
    pub(super) seq: Seq,
    /// Drawn at random for this request.
    pub(super) mark: u64,
    /// How many commits it has sent so far.
    pub(super) attempts: u32,
}

/// Extends the lease. `settled` says up to which token the notices of a resource are done with.
pub(super) fn renew(
    view: View<'_>,
    renewal: &Renewal,
    settled: &BTreeMap<ResourceName, Token>,
) -> Decision<Said> {
    let Renewal { id, seq, mark, attempts } = *renewal;
    let key = Key::Lease(id);
    let Some(record) = view.get(&key) else { return Decision::Read([key].into()) };
    let lease = match record.lease() {
        Some(lease) if lease.is_adopted() && view.is_fresh(record) => return Decision::Say(Said::Gone),
        Some(lease) if lease.ended.is_none() || view.planted.has(Bug::RenewalRecreatesLease) => lease,
        _ if view.is_fresh(record) => return Decision::Say(Said::Gone),
        _ => return Decision::Read([key].into()),
    };
    // An earlier commit of this request may have been applied, although its reply was lost or said otherwise.
    let own = (lease.seq, lease.mark) == (seq, mark) && !view.planted.has(Bug::OwnRenewalIsClones);
    if lease.seq >= seq && !own && !view.planted.has(Bug::ClonesAreOurselves) {
        // Somebody else renews this lease.
        return match view.is_fresh(record) {
            true => Decision::Say(Said::Stale),
            false => Decision::Read([key].into()),
        };
    }
    let standing = |notice: &&Notice| settled.get(&notice.resource).is_none_or(|token| notice.token > *token);
    let notices: Vec<Notice> = lease.notices.iter().filter(standing).cloned().collect();
    if attempts > 0 && view.planted.has(Bug::OlderRenewalCounts) {
        return Decision::Say(Said::Kept { notices, more: false });
    }
    let (renewed, ended, more_notices) = (None, None, false);
    let renewed =
        Lease { seq, mark, renewed, ended, more_notices, notices: notices.clone(), ..lease.clone() };
    let change = Change::of(key, record.version, renewed);
    // A third attempt does not expect `meta`: the lease has to live, even if `meta` changes all the time.
    let with_meta = attempts < 2 && !view.planted.has(Bug::MetaNotExpected);
    let change = match view.meta().filter(|_| with_meta) {
        Some((meta, _)) => change.expecting(Key::Meta, meta.version),
        None => change,
    };
    let said = Said::Kept { notices, more: lease.more_notices };
    Decision::commit(Change { essential: true, urgent: true, ..change }, said)
}

/// Ends the lease. One that is over already, or unknown, is not an error.
pub(super) fn close(view: View<'_>, id: LeaseId, why: Closing, clean: bool) -> Decision<Said> {
    let key = Key::Lease(id);
    let Some(record) = view.get(&key) else { return Decision::Read([key].into()) };
    let Some(lease) = record.lease().filter(|lease| lease.ended.is_none()) else {
        return match view.is_fresh(record) {
            true => Decision::Say(Said::Closed),
            false => Decision::Read([key].into()),
        };
    };
    let change = end(record, id, lease, Ended { at: None, why, clean });
    Decision::commit(Change { essential: true, urgent: true, ..change }, Said::Closed)
}

fn end(record: &Record, id: LeaseId, lease: &Lease, ended: Ended) -> Change {
    let over = Lease { ended: Some(ended), notices: Vec::new(), more_notices: false, ..lease.clone() };
    Change { signals: alloc::vec![Signal::Ended(id)], ..Change::of(Key::Lease(id), record.version, over) }
}

/// Ends a lease that has run out. The store's clock and the caller's own have to agree: the one is in the window, the
/// other has decided.
pub(super) fn end_run_out(view: &View<'_>, id: LeaseId) -> Option<Change> {
    let (record, lease) = view.lease(id)?;
    let Some(Standing::RunOut(at)) = view.standing(id) else { return None };
    let from = at.filter(|_| !view.planted.has(Bug::BoundAlone) && !view.planted.has(Bug::JudgedByOff));
    let mut change = end(record, id, lease, run_out(at));
    change.window = Window { from, until: None };
    Some(Change { essential: true, urgent: true, ..change })
}

/// Writes a lease that a resource names and that does not exist. It runs out like any other, and its worker does not
/// get it back: other records may have been lost with it.
pub(super) fn adopt(view: &View<'_>, id: LeaseId) -> Option<Change> {
    let (_, meta) = view.meta()?;
    let label = Label::new("unknown").ok()?;
    let lease = Lease {
        ttl: meta.longest,
        label,
        opened: None,
        renewed: None,
        seq: if view.planted.has(Bug::AdoptedIsRenewed) { Seq(0) } else { ADOPTED },
        mark: 0,
        notices: Vec::new(),
        more_notices: false,
        ended: None,
        rest: Rest::new(),
    };
    Some(Change::of(Key::Lease(id), Version::NONE, lease))
}

/// The lease of another worker with a notice about this resource in it: when it was renewed stays as it was.
pub(super) fn rewritten(
    view: &View<'_>,
    record: &Record,
    id: LeaseId,
    lease: Lease,
    about: &ResourceName,
) -> Change {
    let signals = alloc::vec![Signal::Knock(id, about.clone())];
    let lease = match view.planted.has(Bug::NoticeAgesLease) {
        true => lease,
        false => record.lease_as_stored(lease),
    };
    Change { signals, ..Change::of(Key::Lease(id), record.version, lease) }
}

/// Deletes a lease that ended long ago, with what its worker said; ends one that ran out long ago. Nobody else looks at
/// one that owns nothing.
pub(super) fn sweep(view: &View<'_>, id: LeaseId) -> Decision<()> {
    let (lease_key, info_key) = (Key::Lease(id), Key::Info(id));
    let (Some(record), Some(info)) = (view.get(&lease_key), view.get(&info_key)) else {
        return Decision::Read([lease_key, info_key].into());
    };
    let Some(lease) = record.lease() else { return Decision::Say(()) };
    let Some(ended) = lease.ended else {
        if !view.is_fresh(record) {
            return Decision::Read([lease_key].into());
        }
        // No worker vouches for the store's clock here: this process has watched the lease itself.
        let gone = view.ago(record, lease.renewed, record.seen.marked_at).saturating_sub(lease.ttl);
        let over = gone >= KEPT && view.watched(record) >= lease.ttl && view.quarantine().is_none();
        return match over.then(|| end_run_out(view, id)).flatten() {
            Some(change) => Decision::commit(Change { urgent: false, ..change }, ()),
            None => Decision::Say(()),
        };
    };
    let kept = if ended.clean { KEPT } else { KEPT_LONG };
    if view.ago(record, ended.at, record.seen.first_at) < kept {
        return Decision::Say(());
    }
    let expect = alloc::vec![(info_key.clone(), info.version), (lease_key.clone(), record.version)];
    let put = alloc::vec![(info_key, None), (lease_key, None)];
    let from = ended.at.map(|at| at + kept);
    Decision::commit(Change { expect, put, window: Window { from, until: None }, ..Change::default() }, ())
}
