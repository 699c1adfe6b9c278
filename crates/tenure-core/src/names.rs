//! What is named and how many there may be: values from outside, checked once, in the type that carries them.

use alloc::string::String;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;

/// A value from outside that breaks a limit. Says which value, and which limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    what: &'static str,
    value: Arc<str>,
    limit: &'static str,
}

impl LimitError {
    /// `what` cannot be `value`, because it has to be `limit`. A long value is cut to its beginning.
    #[must_use]
    pub fn new(what: &'static str, value: &str, limit: &'static str) -> Self {
        Self { what, value: value.chars().take(60).collect::<String>().into(), limit }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} is not {}", self.what, self.value, self.limit)
    }
}

impl core::error::Error for LimitError {}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $limit:literal, $fits:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            #[doc = concat!("Checks that the ", $what, " is ", $limit, ".")]
            ///
            /// # Errors
            /// When it is not.
            pub fn new(text: &str) -> Result<Self, LimitError> {
                let fits: fn(&str) -> bool = $fits;
                if fits(text) { Ok(Self(text.into())) } else { Err(LimitError::new($what, text, $limit)) }
            }

            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

text!(
    /// The name of a resource.
    ResourceName, "resource name", "1 to 200 bytes without control characters",
    |text| (1..=200).contains(&text.len()) && !text.chars().any(char::is_control)
);
text!(
    /// What people call a worker. Two workers with one label are harmless: the lease id is the identity.
    Label, "label", "1 to 100 bytes without control characters",
    |text| (1..=100).contains(&text.len()) && !text.chars().any(char::is_control)
);
text!(
    /// The part of a store that one fleet uses.
    Namespace, "namespace", "1 to 40 of a-z 0-9 _ -, not beginning with pg_",
    |text| {
        (1..=40).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
            && !text.starts_with("pg_")
    }
);
text!(
    /// The schedule of a job as text: for people, and for noticing that a name is used with another one.
    Plan, "plan", "1 to 200 bytes without control characters",
    |text| (1..=200).contains(&text.len()) && !text.chars().any(char::is_control)
);
text!(
    /// What a worker tells the others about itself, as JSON. Only its size is checked here.
    Metadata, "metadata", "at most 4096 bytes of JSON",
    |text| text.len() <= 4096
);

impl Default for Namespace {
    fn default() -> Self {
        Self("tenure".into())
    }
}

impl Default for Metadata {
    fn default() -> Self {
        Self("{}".into())
    }
}

/// How many tickets a resource has: K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tickets(u32);

impl Tickets {
    /// One ticket, the default.
    pub const ONE: Self = Self(1);
    /// The largest number of tickets.
    pub const MOST: u32 = 1_000;

    /// `count` tickets, numbered from 0.
    ///
    /// # Errors
    /// When `count` is 0 or above [`Tickets::MOST`].
    pub fn new(count: u32) -> Result<Self, LimitError> {
        if (1..=Self::MOST).contains(&count) {
            Ok(Self(count))
        } else {
            Err(LimitError::new("number of tickets", &alloc::format!("{count}"), "1 to 1000"))
        }
    }

    /// The number.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0
    }
}

impl Default for Tickets {
    fn default() -> Self {
        Self::ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_at_the_limit_pass_and_beyond_it_are_refused_with_the_limit() {
        assert!(ResourceName::new(&"x".repeat(200)).is_ok() && ResourceName::new("naïve job/7 {a}").is_ok());

        for bad in ["", &"x".repeat(201), "a\nb", "a\u{7f}", "\u{85}"] {
            let refused = ResourceName::new(bad).unwrap_err().to_string();
            assert!(refused.ends_with("is not 1 to 200 bytes without control characters"), "{refused}");
        }
        assert_eq!(
            Label::new("").unwrap_err().to_string(),
            "label \"\" is not 1 to 100 bytes without control characters"
        );
    }

    #[test]
    fn a_namespace_is_narrow() {
        assert!(Namespace::new("a-z_09").is_ok() && Namespace::new(&"n".repeat(40)).is_ok());
        for bad in ["", "A", "a b", "a.b", "pg_x", &"n".repeat(41)] {
            assert!(Namespace::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn metadata_and_tickets_have_limits() {
        assert!(Metadata::new(&"x".repeat(4096)).is_ok() && Metadata::new(&"x".repeat(4097)).is_err());
        assert!(Tickets::new(1).is_ok() && Tickets::new(1_000).is_ok());
        assert_eq!(Tickets::new(0).unwrap_err().to_string(), "number of tickets \"0\" is not 1 to 1000");
        assert!(Tickets::new(1_001).is_err());
    }

    #[test]
    fn an_error_quotes_only_the_beginning_of_a_long_value() {
        assert!(ResourceName::new(&"ä".repeat(5_000)).unwrap_err().to_string().len() < 250);
    }
}
