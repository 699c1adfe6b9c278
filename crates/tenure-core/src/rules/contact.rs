//! The first contact with a store, or with another life of it: a quarantine unless nothing can have been lost.

use core::time::Duration;

use super::change::{Change, Decision};
use super::keys::Key;
use super::records::{Meta, Quarantine, Record, Rest};
use crate::message::{Incarnation, Token};

/// What a process knows of the data that a store had before, while somebody may still rely on what they said: in another
/// life, or in the same one if they were wiped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Before {
    pub(super) life: Incarnation,
    /// Drawn when the data were new.
    pub(super) secret: Option<u128>,
    pub(super) longest: Duration,
}

/// What has to be written before anything else is decided in this life of the store; nothing if all is as it should be.
/// `known` is the longest ttl that the process knows of, which counts where the record is missing. `lost_nothing`: the
/// store can show that it has lost no data, which is asked where the record is missing. `lasts`: the quarantine that
/// stands is long enough for those who rely on the life before.
pub(super) fn arrive(
    record: &Record,
    life: Incarnation,
    (before, known, lasts): (Option<Before>, Duration, bool),
    lost_nothing: Option<bool>,
    (secret, mark): (u128, u64),
) -> Option<Decision<()>> {
    let wiped =
        |before: &Before| before.secret.is_some() && record.meta().map(|meta| meta.secret) != before.secret;
    let before = before.filter(|before| before.life != life || wiped(before));
    let brought = before.map_or(Duration::ZERO, |before| before.longest);
    let quarantine = |from| Some(Quarantine { since: None, mark, from, rest: Rest::new() });
    let meta = match record.meta() {
        None => {
            let clean = lost_nothing == Some(true) && before.is_none();
            let quarantine = if clean { None } else { quarantine(before.map(|before| before.life)) };
            Meta { life, longest: brought.max(known), quarantine, floor: Token(0), secret, rest: Rest::new() }
        }
        Some(meta) if meta.life != life => Meta {
            life,
            longest: meta.longest.max(brought),
            quarantine: quarantine(Some(before.map_or(meta.life, |before| before.life))),
            ..meta.clone()
        },
        Some(meta) => {
            let before = before?;
            let from = meta.quarantine.as_ref().and_then(|stands| stands.from);
            let stands = from == Some(before.life) && lasts;
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
    Some(Decision::commit(Change { urgent: true, ..Change::of(Key::Meta, record.version, meta) }, ()))
}
