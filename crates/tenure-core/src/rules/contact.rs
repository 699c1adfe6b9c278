//! The first contact with a store, or with another life of it: a quarantine unless nothing can have been lost.

use core::time::Duration;

use super::change::Change;
use super::keys::Key;
use super::records::{Meta, Quarantine, Record, Rest};
use crate::message::{Incarnation, Token};

/// What a process knows of the data that a store had before, while somebody may still rely on what they said: in
/// another life, or in the same one if they were wiped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Before {
    pub(super) life: Incarnation,
    /// Drawn when the data were new.
    pub(super) secret: Option<u128>,
    pub(super) longest: Duration,
}

/// What a process brings to a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// What it knows of the data that the store had before.
    pub(super) before: Option<Before>,
    /// The longest ttl that it knows of, which counts where the record is missing.
    pub(super) known: Duration,
    /// The quarantine that stands is long enough for those who rely on the data before.
    pub(super) lasts: bool,
    /// The store has lost no data, as it showed after the record had got its present version.
    pub(super) lost_nothing: bool,
    /// Drawn for what is new.
    pub(super) secret: u128,
    pub(super) mark: u64,
}

/// What has to be written before anything else is decided in this life of the store; nothing if all is as it should be.
pub(super) fn arrive(record: &Record, life: Incarnation, arrival: &Arrival) -> Option<Change> {
    let wiped =
        |before: &Before| before.secret.is_some() && record.meta().map(|meta| meta.secret) != before.secret;
    let before = arrival.before.filter(|before| before.life != life || wiped(before));
    let brought = before.map_or(Duration::ZERO, |before| before.longest);
    let quarantine = |from| Some(Quarantine { since: None, mark: arrival.mark, from, rest: Rest::new() });
    let meta = match (record.meta(), before) {
        // Also in a store that has lost nothing: it is asked when this stands. An earlier answer might be untrue by
        // then.
        (None, before) => Meta {
            life,
            longest: brought.max(arrival.known),
            quarantine: quarantine(before.map(|before| before.life)),
            floor: Token(0),
            secret: arrival.secret,
            rest: Rest::new(),
        },
        (Some(meta), before) if meta.life != life => Meta {
            life,
            longest: meta.longest.max(brought),
            quarantine: quarantine(Some(before.map_or(meta.life, |before| before.life))),
            ..meta.clone()
        },
        (Some(meta), None) => {
            meta.new_quarantine().filter(|_| arrival.lost_nothing)?;
            Meta { quarantine: None, ..meta.clone() }
        }
        (Some(meta), Some(before)) => {
            let from = meta.quarantine.as_ref().and_then(|stands| stands.from);
            let stands = from == Some(before.life) && arrival.lasts;
            if stands && meta.longest >= brought {
                return None;
            }
            let meta = record.meta_as_stored(meta);
            let quarantine = match stands {
                true => meta.quarantine,
                false => quarantine(Some(before.life)),
            };
            Meta { longest: meta.longest.max(brought), quarantine, ..meta }
        }
    };
    Some(Change { urgent: true, ..Change::of(Key::Meta, record.version, meta) })
}
