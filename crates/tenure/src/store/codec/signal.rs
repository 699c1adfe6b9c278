//! The texts of signals.
//!
//! The rules decide who gets a signal; `listening/channels.rs` names the channel.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tenure_core::{Incarnation, LeaseId, Message, Payload, ResourceName, Ticket, Token, Version};

use crate::store::backend::Text;
use crate::store::json::{Read, Reader, Writer};

/// A signal as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentSignal {
    /// A ticket may be free. Carries the record of the resource if it fits.
    Look {
        resource: ResourceName,
        after: Duration,
        record: Option<SentRecord>,
    },
    Ended(LeaseId),
    Knock(ResourceName),
    /// The record of the resource has changed.
    Changed {
        resource: ResourceName,
        record: SentRecord,
    },
    Message {
        message: Message,
        number: u64,
    },
}

/// A record inside a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentRecord {
    pub(crate) life: Incarnation,
    pub(crate) version: Version,
    pub(crate) text: Text,
}

/// The text of a signal. If it would be longer than `most` bytes, the record in it is left out. `None` for a signal
/// that is of no use without its record.
pub(crate) fn encode_signal(signal: &SentSignal, most: usize) -> Option<Text> {
    let write = |with_record: bool| {
        Writer::object(|write| match signal {
            SentSignal::Look { resource, after, record } => {
                write.put("look", resource.as_str());
                write.span("after_us", *after);
                write.sent_record(record.as_ref().filter(|_| with_record));
            }
            SentSignal::Changed { resource, record } => {
                write.put("changed", resource.as_str());
                write.sent_record(Some(record));
            }
            SentSignal::Ended(lease) => write.hex("ended", lease.0),
            SentSignal::Knock(resource) => write.put("knock", resource.as_str()),
            SentSignal::Message { message, number } => {
                write.put("message", message.resource.as_str());
                write.put("ticket", message.ticket.0);
                write.put("token", message.token.0);
                write.put("number", *number);
                write.put("bytes", STANDARD.encode(message.bytes()));
            }
        })
    };
    let whole = write(true);
    match signal {
        _ if whole.len() <= most => Some(whole.into()),
        SentSignal::Changed { .. } => None,
        _ => Some(write(false).into()),
    }
}

/// Reads a signal; nothing for a text that Tenure does not send.
pub(crate) fn decode_signal(text: &str) -> Option<SentSignal> {
    let mut read = Reader::of(text, "signal").ok()?;
    if read.has("look") {
        let (resource, after) = (read.name("look").ok()?, read.span("after_us").ok()?);
        return Some(SentSignal::Look { resource, after, record: read.sent_record().ok()? });
    }
    if read.has("changed") {
        return Some(SentSignal::Changed {
            resource: read.name("changed").ok()?,
            record: read.sent_record().ok()??,
        });
    }
    if read.has("ended") {
        return Some(SentSignal::Ended(LeaseId(read.hex("ended").ok()?)));
    }
    if read.has("message") {
        let payload = STANDARD.decode(read.text("bytes").ok()?).ok()?;
        let message = Message {
            resource: read.name("message").ok()?,
            ticket: Ticket(read.small("ticket").ok()?),
            token: Token(read.number("token").ok()?),
            payload: Payload::new(&payload).ok()?,
        };
        return Some(SentSignal::Message { message, number: read.drawn("number").ok()? });
    }
    read.name("knock").ok().map(SentSignal::Knock)
}

impl Writer {
    pub(super) fn sent_record(&mut self, sent: Option<&SentRecord>) {
        if let Some(sent) = sent {
            self.hex("life", sent.life.0);
            self.put("version", sent.version.0);
            self.raw("record", sent.text.as_str());
        }
    }
}

impl Reader<'_> {
    pub(super) fn sent_record(&mut self) -> Read<Option<SentRecord>> {
        let Some(record) = self.maybe_raw("record") else { return Ok(None) };
        let (life, version) = (Incarnation(self.hex("life")?), Version(self.drawn("version")?));
        Ok(Some(SentRecord { life, version, text: record.into() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_left_out_of_a_signal_that_would_be_too_long() {
        let resource = ResourceName::new("r").expect("a name");
        let record = SentRecord { life: Incarnation(1), version: Version(2), text: r#"{"rev":1}"#.into() };
        let look = |record| SentSignal::Look { resource: resource.clone(), after: Duration::ZERO, record };
        let changed = SentSignal::Changed { resource: resource.clone(), record: record.clone() };
        for (signal, short) in [(look(Some(record)), Some(look(None))), (changed, None)] {
            let whole = encode_signal(&signal, usize::MAX).expect("there is room");
            let length = whole.as_str().len();

            assert_eq!(decode_signal(whole.as_str()), Some(signal.clone()));
            assert_eq!(encode_signal(&signal, length).as_ref(), Some(&whole));
            let left = encode_signal(&signal, length - 1).map(|text| decode_signal(text.as_str()));
            assert_eq!(left, short.map(Some));
        }
    }
}
