//! What an owner sends to all workers of its namespace. At most once: it may be lost, and is never doubled.

use alloc::sync::Arc;
use core::fmt;

use crate::message::{Ticket, Token};
use crate::names::{LimitError, ResourceName};

/// The bytes of one message. One limit for all stores, so that code moves from one to another.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<[u8]>);

impl Payload {
    /// The most that one message carries.
    pub const MOST: usize = 4096;

    /// Checks that there are not too many.
    ///
    /// # Errors
    /// When there are more than [`Payload::MOST`].
    pub fn new(bytes: &[u8]) -> Result<Self, LimitError> {
        if bytes.len() <= Self::MOST {
            Ok(Self(bytes.into()))
        } else {
            let value = alloc::format!("{} bytes", bytes.len());
            Err(LimitError::new("message of", &value, "at most 4096 bytes"))
        }
    }

    /// The bytes themselves.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Payload {
    /// Without the bytes: they are the application's, and may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// What a store says to an owner that publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "who does not own has sent nothing"]
pub enum Published {
    /// It was sent to whoever listens.
    Sent,
    /// The sender is not the owner, or not any more; nothing was sent.
    NotOwner,
}

/// What an owner sent, as those who subscribed receive it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Of which resource it is the owner.
    pub resource: ResourceName,
    /// Under which ticket.
    pub ticket: Ticket,
    /// Under which token.
    pub token: Token,
    /// What it sent.
    pub payload: Payload,
}

impl Message {
    /// The bytes that were sent.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.payload.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_message_beyond_the_limit_is_refused_with_the_limit() {
        assert!(Payload::new(&[0; 4096]).is_ok() && Payload::new(&[]).is_ok());
        assert_eq!(
            Payload::new(&[0; 4097]).unwrap_err().to_string(),
            "message of \"4097 bytes\" is not at most 4096 bytes"
        );
    }
}
