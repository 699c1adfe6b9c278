//! Carries one request out: the steps that the rules ask for, as reads and commits of the backend.

use crate::runtime::events::{self, Event, StoreChange};
use tenure_core::rules::{Act, Fate, Found, Key, Operation, Reply, Sending, Shown, Step};
use tenure_core::{Incarnation, Version};

use super::Inner;
use crate::Error;
use crate::store::backend::{Backend, Change, Commits, Committed, Listing, Page, Snapshot, Stored};
use crate::store::codec;

impl<B: Backend> Inner<B> {
    /// Carries a request out. If the caller drops it half-way, a commit that was under way is in doubt, and the client
    /// knows that.
    pub(in crate::store) async fn run(&self, act: Act) -> Result<Reply, Error> {
        let env = self.env();
        let mut operation = self.client().begin(&env, act);
        loop {
            let env = self.env();
            let step = self.client().step(&env, &mut operation);
            match step {
                Step::Done(reply) => return Ok(reply),
                Step::Wait(span) => self.clocks.sleep(span).await,
                Step::Read(keys) => self.read_for(&mut operation, &keys).await?,
                Step::Commit(life, sendings) => self.commit_for(&mut operation, life, &sendings).await?,
                Step::LostNothing(within) => {
                    let lost_nothing = self.backend.lost_nothing(within).await?;
                    self.client().lost_nothing(&mut operation, lost_nothing);
                }
                Step::List => {
                    let records = self.list(Listing::Resources).await?.1;
                    let names = records.into_iter().filter_map(|stored| match stored.key {
                        Key::Resource(name) => Some(name),
                        _ => None,
                    });
                    let names = names.collect();
                    self.client().listed(&mut operation, names);
                }
            }
        }
    }

    pub(super) async fn read_for(&self, operation: &mut Operation, keys: &[Key]) -> Result<(), Error> {
        let (shown, records) = self.fetch(keys).await?;
        let records = self.readable_for(operation, records)?;
        let env = self.env();
        self.client().read(&env, operation, shown, records);
        Ok(())
    }

    /// Decodes what was read for a request. One unreadable resource does not fail the others of the request.
    pub(super) fn readable_for(
        &self,
        operation: &mut Operation,
        records: Vec<Stored>,
    ) -> Result<Vec<Found>, Error> {
        let mut readable = Vec::with_capacity(records.len());
        for stored in records {
            let key = stored.key.clone();
            match (decoded(stored), &key) {
                (Ok(found), _) => readable.push(found),
                (Err(error), Key::Resource(name)) if self.client().unreadable(operation, name) => {
                    let change = StoreChange::Unreadable { error: error.to_string() };
                    events::tell(Event::Store { worker: None, resource: Some(name.clone()), change });
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(readable)
    }

    pub(super) async fn commit_for(
        &self,
        operation: &mut Operation,
        life: Incarnation,
        sendings: &[Sending],
    ) -> Result<(), Error> {
        let changes: Vec<Change> = sendings.iter().map(|sending| self.change(life, sending)).collect();
        let Commits { life, now, done } = self.backend.commit(life, &changes).await?;
        if done.len() != changes.len() {
            return Err(Error::corrupt("unexpected reply from the store: not one result per change"));
        }
        let fates = done.into_iter().map(|committed| match committed {
            Committed::Done { stamp } => Ok(Fate::Done(stamp)),
            Committed::Conflict(records) => Ok(Fate::Conflict(self.readable_for(operation, records)?)),
        });
        let fates = fates.collect::<Result<Vec<Fate>, Error>>()?;
        let env = self.env();
        self.client().committed(&env, operation, Shown { life, now, wall: None }, fates);
        Ok(())
    }

    /// Reads and decodes these records.
    pub(super) async fn read(&self, keys: &[Key]) -> Result<(Shown, Vec<Found>), Error> {
        let (shown, records) = self.fetch(keys).await?;
        Ok((shown, records.into_iter().map(decoded).collect::<Result<_, _>>()?))
    }

    pub(super) async fn fetch(&self, keys: &[Key]) -> Result<(Shown, Vec<Stored>), Error> {
        let Snapshot { life, now, wall, records } = self.backend.read(keys).await?;
        if records.len() != keys.len() || records.iter().zip(keys).any(|(record, key)| record.key != *key) {
            return Err(Error::corrupt("unexpected reply from the store: other records than requested"));
        }
        Ok((Shown { life, now, wall }, records))
    }

    /// All records of a kind, and what the store showed with the last page.
    pub(super) async fn list(&self, of: Listing) -> Result<(Shown, Vec<Stored>), Error> {
        let mut all = Vec::new();
        let mut after: Option<Key> = None;
        loop {
            let Page { shown, more } = self.backend.list(of, after.as_ref()).await?;
            let Snapshot { life, now, wall, records } = shown;
            all.extend(records);
            match all.last() {
                Some(last) if more => after = Some(last.key.clone()),
                _ => return Ok((Shown { life, now, wall }, all)),
            }
        }
    }
}

pub(super) fn decoded(Stored { key, version, stamp, value }: Stored) -> Result<Found, Error> {
    let Some(text) = value else {
        return Ok(Found { key, version: Version::NONE, revision: 0, stamp, value: None });
    };
    let (revision, value) = codec::decode(&key, text.as_str())?;
    Ok(Found { key, version, revision, stamp, value: Some(value) })
}

/// The readable ones of many records: one damaged record does not hide the others from people.
pub(super) fn readable(records: Vec<Stored>) -> Vec<Found> {
    let read = |stored: Stored| match decoded(stored) {
        Ok(found) => Some(found),
        Err(error) => {
            events::store(StoreChange::Unreadable { error: error.to_string() });
            None
        }
    };
    records.into_iter().filter_map(read).collect()
}
