//! The records that a store keeps, as the rules see them: one file per kind of record, and `seen` for what a process
//! knows about when it saw them.
//!
//! How records are written as text does not belong here: that is the codec of the library.

mod job;
mod lease;
mod meta;
mod names;
mod resource;
mod seen;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;

pub use self::job::{Job, Run, Runs};
pub(super) use self::lease::{ADOPTED, is_told, notify};
pub use self::lease::{Ended, Info, Lease, MOST_NOTICES};
pub use self::meta::{MOST_TTLS, Meta, Quarantine, TtlUse, Ttls};
pub use self::resource::{MOST_WAITERS, Owner, Resource, SetBy, Waiter};
pub use self::seen::{Found, Order, Record, Seen};
use crate::moment::StoreTime;

/// A point in time in a record. Absent: when this version of the record was written. A client that reads a
/// record fills in its stamp; only a store without a clock leaves it absent.
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
                resource.owners.iter_mut().for_each(|owner| on(&mut owner.since));
                let latest = resource.job.iter_mut().filter_map(|job| job.latest.as_mut());
                latest.for_each(|run| on(&mut run.began));
            }
            Self::Info(_) | Self::Runs(_) => {}
        }
    }

    /// A number that changes with every renewal of a lease, every freed ticket and every quarantine.
    fn generation(&self) -> u64 {
        match self {
            Self::Lease(lease) => lease.seq.0,
            Self::Resource(resource) => resource.frees,
            Self::Meta(meta) => meta.quarantine.as_ref().map_or(0, |quarantine| quarantine.mark),
            _ => 0,
        }
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
