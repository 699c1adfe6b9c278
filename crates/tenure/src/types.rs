//! The values that events, results and settings are made of.

pub use tenure_core::{
    Clock, Grant, Label, LimitError, Metadata, ResourceName, Term, Ticket, TimingError, Token, WaitReason,
    Waiting,
};

pub use crate::runtime::engine::OnOverdue;
pub use crate::runtime::flapping::FlapLimit;
