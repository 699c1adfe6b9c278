//! The library on a store that fails, hangs and is slow; what it tells of itself; and resources without limit.

mod app;
mod shaky;
mod surface;
mod told;
mod trouble;
mod unlimited;
