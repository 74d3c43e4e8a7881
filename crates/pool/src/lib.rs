//! Handlers that run in worker processes, behind the contract of [`veche_runtime`].
//!
//! [`Workers`] is the runtime of one application on one server thread; a thread of its own has the processes. The page of
//! the crate describes the parts.

#![forbid(unsafe_code)]

mod connections;
mod lines;
mod link;
mod manager;
mod process;
mod program;
mod queue;
mod shared;
mod workers;

pub use program::{Options, Program};
pub use workers::Workers;
