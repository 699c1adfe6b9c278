//! What a request does before anything is decided: the first contact with a store, or with a new life of it.
//!
//! When that begins a quarantine is decided in `rules/contact.rs`.

use alloc::collections::BTreeSet;
use alloc::vec;

use super::Client;
use super::answer::PartAnswer;
use super::operation::Operation;
use super::protocol::{Act, Env, Step};
use crate::message::Call;
use crate::planted::Bug;
use crate::rules::contact::{self, Arrival};
use crate::rules::keys::Key;
use crate::rules::records::{Meta, Record};
use crate::rules::tickets;
use crate::timing::LONGEST_TTL;

impl Client {
    /// The next step towards a known `meta` record of this life of the store; nothing if it is known.
    pub(super) fn contact(&mut self, env: &Env, op: &mut Operation) -> Option<Step> {
        let known = self.life.zip(self.records.get(&Key::Meta));
        let Some((heard, record)) = known else {
            let mut keys: BTreeSet<Key> = [Key::Meta, Key::Ttls].into();
            keys.extend(self.first_keys(env, op));
            return Some(self.read_step(env, op, keys));
        };
        let before = self.before.filter(|(before, at)| env.at.longest_since(*at) <= before.longest);
        let owed = before.map(|(before, at)| before.longest.saturating_sub(env.at.shortest_since(at)));
        // A quarantine has to last until every worker that relies on the life before has given up.
        let left = self.view(env, op).shortest_quarantine(&self.known_meta).unwrap_or_default();
        let lasts = left >= owed.unwrap_or_default() || self.planted.has(Bug::OldQuarantineStands);
        let before = before.map(|(before, _)| before);
        // The longest ttl that any worker may rely on, as far as this process knows. It counts where `meta` is missing.
        let noted = self.records.get(&Key::Ttls).and_then(Record::ttls);
        let noted = noted.into_iter().flat_map(|ttls| ttls.uses.iter().map(|used| used.ttl)).max();
        let known = self.longest.max(noted.unwrap_or_default()).max(op.opens_for().unwrap_or_default());
        let lost_nothing = op.lost_nothing == Some(record.version);
        if let Some(new) = record.meta().filter(|meta| meta.life == heard.life).and_then(Meta::new_quarantine)
            && !lost_nothing
        {
            // A request that opens no lease does not know a ttl: it looks back as far as any lease may last.
            let within = op.opens_for().unwrap_or(LONGEST_TTL).max(known);
            if self.may_have_lost.is_none_or(|(mark, asked)| mark != new.mark || within < asked) {
                op.asked_lost_nothing = Some((record.version, new.mark, within));
                return Some(Step::LostNothing(within));
            }
        }
        let (secret, mark) = (env.chance, env.chance as u64);
        let arrival = Arrival { before, known, lasts, lost_nothing, secret, mark };
        match contact::arrive(record, heard.life, &arrival) {
            Some(change) => {
                op.quarantine = Some(mark);
                Some(self.commit_step(env, op, vec![(None, change, PartAnswer::Done)]))
            }
            None => {
                (self.before, self.known_meta.own_quarantine) = (None, None);
                None
            }
        }
    }

    /// What the rules will want to read first, so that the first contact takes one round trip.
    fn first_keys(&self, env: &Env, op: &Operation) -> BTreeSet<Key> {
        let view = self.view(env, op);
        match &op.act {
            Act::Call(request, _) => match &request.call {
                Call::Open { .. } => [Key::Lease(request.lease), Key::Info(request.lease)].into(),
                Call::Claim(wants) => {
                    let mut keys: BTreeSet<Key> = [Key::Lease(request.lease)].into();
                    wants.iter().for_each(|want| {
                        keys.extend(tickets::look_keys(&view, request.lease, &want.resource));
                    });
                    keys
                }
                Call::Release(leaves) => {
                    leaves.iter().map(|leave| Key::Resource(leave.resource.clone())).collect()
                }
                Call::Renew | Call::Close(_) => [Key::Lease(request.lease)].into(),
                Call::Held => BTreeSet::new(),
            },
            Act::Ask(name, ..) | Act::Evict(name, _) => [Key::Resource(name.clone())].into(),
            Act::Job(step) => {
                [Key::Resource(step.holder.resource.clone()), Key::Lease(step.holder.lease)].into()
            }
            Act::Publish(holder, _) => {
                [Key::Resource(holder.resource.clone()), Key::Lease(holder.lease)].into()
            }
            Act::Prove(lease) => [Key::Lease(*lease)].into(),
            Act::Wishes(_) | Act::DropTtls(..) | Act::Sweep(_) => BTreeSet::new(),
        }
    }
}
