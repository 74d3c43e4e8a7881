//! The spawner: a process that starts the worker processes of applications for a server process, which is confined and can't
//! start them itself.
//!
//! [`run`] is the spawner, [`launch`] the first program of a worker process; [`Spawner`] and [`PoolLink`] are the
//! server process's side. The spawner does not use the runtime protocol: it only passes a worker's socket on. The
//! crate's README describes the ends of each socket.

#![forbid(unsafe_code)]

mod client;
mod helper;
mod launch;
mod wire;

pub use client::{PendingSpawner, PoolLink, Spawned, Spawner, Start};
pub use helper::run;
pub use launch::launch;
pub use wire::{SpawnerSetup, WorkerProgram};

/// The argument that makes the program a spawner; only the supervisor and the server process use it.
pub const SPAWNER: &str = "worker-spawner";

/// The argument that makes the program the launcher of a worker process; only the spawner uses it.
pub const LAUNCHER: &str = "worker-launcher";
