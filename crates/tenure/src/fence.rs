//! Fenced writes: what an owner sends carries its token, and whoever receives it refuses what is older than the newest
//! that it has seen.
//!
//! A lease cannot call back a write that is under way: an owner that was paused between its last look and its write may
//! write after the next one has begun. Where that would do harm, let the receiver look at the token. Marks are kept per
//! ticket, so that the K owners of a resource do not refuse each other.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tenure::fence::Marks;
//!
//! let worker = tenure::Worker::connect("memory:").await?;
//! let marks = Marks::new(); // what the receiver has seen
//!
//! let own = worker.campaign("ledger").acquire().await?;
//! let earlier = own.fence();
//! marks.admit(&earlier)?; // write
//! own.release().await;
//!
//! let own = worker.campaign("ledger").acquire().await?;
//! marks.admit(&own.fence())?;
//! assert!(marks.admit(&earlier).is_err()); // too late
//! # Ok(()) }
//! ```

#[cfg(feature = "tower")]
pub mod http;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use tenure_core::{LimitError, ResourceName, Ticket, Tickets, Token};

use crate::{Error, Lead};

/// Under which ownership something is done. It goes with every write, and outlives the ownership: that is its use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    resource: ResourceName,
    ticket: Ticket,
    token: Token,
}

impl Lead {
    /// What its writes carry, so that they can be refused once a later owner has written.
    // req: T4
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence { resource: self.resource().clone(), ticket: Ticket(self.ticket()), token: Token(self.token()) }
    }
}

impl Fence {
    /// One from its parts, as they came from elsewhere.
    ///
    /// # Errors
    /// When there is no such name, no such ticket, or no token: zero was never given to anybody.
    pub fn new(resource: &str, ticket: u32, token: u64) -> Result<Self, LimitError> {
        let resource = ResourceName::new(resource)?;
        if ticket >= Tickets::MOST {
            return Err(LimitError::new("ticket", &ticket.to_string(), "from 0 to 999"));
        }
        if !(1..=LARGEST).contains(&token) {
            return Err(LimitError::new("token", &token.to_string(), "from 1 to 2^53 - 1"));
        }
        Ok(Self { resource, ticket: Ticket(ticket), token: Token(token) })
    }

    /// That of the ownership under which `tenure run` has started this process: from `TENURE_RESOURCE`,
    /// `TENURE_TICKET` and `TENURE_TOKEN`.
    ///
    /// # Errors
    /// When one of them is missing or makes no sense.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let text = |name: &str| {
            let missing = || {
                Error::refused(format!("`{name}` is not set: this process was not started by `tenure run`"))
            };
            variable(name).ok_or_else(missing)
        };
        let (resource, ticket, token) =
            (text("TENURE_RESOURCE")?, text("TENURE_TICKET")?, text("TENURE_TOKEN")?);
        Ok(Self::new(&resource, number("ticket", &ticket)?, number("token", &token)?)?)
    }

    /// The resource that is owned.
    #[must_use]
    pub fn resource(&self) -> &ResourceName {
        &self.resource
    }

    /// Which of its seats.
    #[must_use]
    pub fn ticket(&self) -> u32 {
        self.ticket.0
    }

    /// Larger than that of every ownership before.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token.0
    }
}

/// The largest that a store gives: all of them can count so far exactly.
const LARGEST: u64 = (1 << 53) - 1;

fn number<T: FromStr>(what: &'static str, text: &str) -> Result<T, LimitError> {
    // Rust would take a + before them, too.
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| LimitError::new(what, text, "a whole number in decimal digits"))
}

/// As it is sent: token, ticket and resource, a blank between them. Of the resource everything but letters, digits
/// and a few signs of ASCII is written as `%` and two hexadecimal digits per byte.
impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.token.0, self.ticket.0)?;
        for byte in self.resource.as_str().bytes() {
            match byte {
                b'%' => f.write_str("%25")?,
                b'!'..=b'~' => write!(f, "{}", char::from(byte))?,
                other => write!(f, "%{other:02X}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Fence {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let odd = || LimitError::new("fence", text, "a token, a ticket and a resource, with blanks between");
        let mut parts = text.splitn(3, ' ');
        let (Some(token), Some(ticket), Some(resource)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(odd());
        };
        let resource = decoded(resource).ok_or_else(odd)?;
        Self::new(&resource, number("ticket", ticket)?, number("token", token)?)
    }
}

/// What `%` and two digits stand for.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit =
                    |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                bytes.push(digit(high)? << 4 | digit(low)?);
                rest = after;
            }
            (b'%', _) => return None,
            (b'!'..=b'~', after) => {
                bytes.push(*first);
                rest = after;
            }
            _ => return None,
        }
    }
    String::from_utf8(bytes).ok()
}

/// A write came too late: a later owner of the same ticket has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    fence: Fence,
    newest: u64,
}

impl Stale {
    pub(crate) fn new(fence: &Fence, newest: u64) -> Self {
        Self { fence: fence.clone(), newest }
    }

    /// What came too late.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The token of the newest owner that was seen.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.newest
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fence { resource, ticket, token } = &self.fence;
        let (ticket, token, newest) = (ticket.0, token.0, self.newest);
        write!(f, "token {token} of ticket {ticket} of `{resource}` is stale: {newest} has written already")
    }
}

impl StdError for Stale {}

/// The newest token seen of each ticket: what a receiver has to keep, here in memory.
///
/// It knows what it has seen since it was made. A receiver that restarts, or of which there are several, keeps its marks
/// where it keeps what is written, as the fences for PostgreSQL and Redis do.
#[derive(Debug, Default)]
pub struct Marks(Mutex<HashMap<(ResourceName, Ticket), Token>>);

impl Marks {
    /// Has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a write pass, and from then on none of an earlier owner of the same ticket.
    ///
    /// # Errors
    /// [`Stale`] when a later owner has written. Do not write then.
    pub fn admit(&self, fence: &Fence) -> Result<(), Stale> {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = marks.entry((fence.resource.clone(), fence.ticket)).or_insert(fence.token);
        if *newest > fence.token {
            return Err(Stale::new(fence, newest.0));
        }
        *newest = fence.token;
        Ok(())
    }
}

/// Why a write was not done.
#[derive(Debug)]
pub enum Refusal<E> {
    /// It came too late, and never will be in time.
    Stale(Stale),
    /// Where it was to be written there was trouble. Nothing is known of whether it was done, unless the error says.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for Refusal<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: StdError + 'static> StdError for Refusal<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Stale(_) => None,
            Self::Failed(error) => error.source(),
        }
    }
}

#[cfg(test)]
mod tests;
