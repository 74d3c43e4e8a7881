//! Handlers that run in worker processes, behind the contract of [`veche_runtime`].
//!
//! [`Workers`] is the runtime of one application on one server thread; a separate thread starts and ends the
//! processes and reads from them. The crate's README describes the division of work.

#![forbid(unsafe_code)]

mod connections;
mod figures;
mod frames;
mod inbox;
mod lines;
mod link;
mod manager;
mod options;
mod output;
mod process;
mod program;
mod queue;
mod shared;
mod watch;
mod wear;
mod workers;

pub use figures::{PoolFigures, PoolGauges, PoolRegistry, RestartReason};
pub use options::Options;
pub use program::Program;
pub use workers::Workers;
