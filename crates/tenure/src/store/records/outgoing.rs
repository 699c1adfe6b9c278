//! Changes and signals on their way to the backend: records, history and signals as text.

use tenure_core::rules::{Key, Sending, Signal};
use tenure_core::{Incarnation, Message, ResourceName};

use super::Inner;
use crate::store::backend::{self, Backend, Change, HistoryEntry, Put};
use crate::store::codec::{self, SentRecord, SentSignal};

impl<B: Backend> Inner<B> {
    /// The change as the backend takes it.
    pub(super) fn change(&self, life: Incarnation, sending: &Sending) -> Change {
        let Sending { change, version, revisions } = sending;
        let put: Vec<Put> = change
            .put
            .iter()
            .zip(revisions)
            .map(|((key, value), revision)| Put {
                key: key.clone(),
                version: *version,
                value: value.as_ref().map(|value| codec::encode(value, *revision)),
            })
            .collect();
        let sent_record = |resource: &ResourceName| {
            let put = put.iter().find(|put| put.key == Key::Resource(resource.clone()))?;
            Some(SentRecord { life, version: *version, text: put.value.clone()? })
        };
        let signals = change.signals.iter().filter_map(|signal| self.signal(signal, &sent_record)).collect();
        let history = change.history.iter().map(|event| HistoryEntry {
            resource: event.resource.clone(),
            at: event.at,
            text: codec::encode_event(event),
        });
        Change {
            expect: change.expect.clone(),
            window: change.window,
            history: history.collect(),
            put,
            signals,
            lasting: change.lasting,
            essential: change.essential,
        }
    }

    pub(super) fn signal(
        &self,
        signal: &Signal,
        sent_record: &dyn Fn(&ResourceName) -> Option<SentRecord>,
    ) -> Option<backend::Signal> {
        let channels = self.channels()?;
        let most = self.backend.capabilities().most_signal_bytes;
        let (to, sent) = match signal {
            Signal::Look { to, resource, after } => {
                let channels = to.iter().map(|lease| channels.lease(*lease)).collect();
                (
                    channels,
                    SentSignal::Look {
                        resource: resource.clone(),
                        after: *after,
                        record: sent_record(resource),
                    },
                )
            }
            Signal::Changed(lease, resource) => {
                let record = sent_record(resource)?;
                (vec![channels.lease(*lease)], SentSignal::Changed { resource: resource.clone(), record })
            }
            Signal::Ended(lease) => (vec![channels.end(*lease)], SentSignal::Ended(*lease)),
            Signal::Knock(lease, resource) => {
                (vec![channels.lease(*lease)], SentSignal::Knock(resource.clone()))
            }
            Signal::Message { resource, ticket, token, number, payload } => {
                let (resource, ticket, token) = (resource.clone(), *ticket, *token);
                let channel = channels.messages(&resource);
                let message = Message { resource, ticket, token, payload: payload.clone() };
                (vec![channel], SentSignal::Message { message, number: *number })
            }
        };
        Some(backend::Signal { to, text: codec::encode_signal(&sent, most)? })
    }
}
