//! The names of a namespace's channels. They depend on a secret, so that strangers cannot guess them.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use tenure_core::{LeaseId, ResourceName};

use crate::store::backend::Channel;

/// The names of the channels of a namespace, made of its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct ChannelNames(pub(super) u128);

impl ChannelNames {
    /// The channel for hints to the worker of this lease.
    pub(in crate::store) fn lease(self, lease: LeaseId) -> Channel {
        self.channel(b"lease", &lease.0.to_be_bytes())
    }

    /// The channel that tells others when this lease has ended.
    pub(in crate::store) fn end(self, lease: LeaseId) -> Channel {
        self.channel(b"end", &lease.0.to_be_bytes())
    }

    /// The channel for messages of the owners of this resource.
    pub(in crate::store) fn messages(self, resource: &ResourceName) -> Channel {
        self.channel(b"messages", resource.as_str().as_bytes())
    }

    fn channel(self, kind: &[u8], name: &[u8]) -> Channel {
        let mut hash = Sha256::new();
        hash.update(self.0.to_be_bytes());
        hash.update(kind);
        hash.update([0]);
        hash.update(name);
        let hash = hash.finalize();
        let mut name = "t_".to_owned();
        for byte in &hash[..20] {
            let _written = write!(name, "{byte:02x}");
        }
        Channel::new(name)
    }
}
