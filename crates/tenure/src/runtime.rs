//! Everything that runs on the driver's thread, and what it shares with the threads of the application.

pub(crate) mod clock;
pub(crate) mod deadline;
pub(crate) mod driver;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod flapping;
mod health;
mod peers;
pub(crate) mod process;
pub(crate) mod subscription;
pub(crate) mod telemetry;
