//! The history of channels on disk, so that a restart and a `kill -9` lose nothing: publications inside their windows,
//! and each stream's epoch, top offset and version.
//!
//! Workers hand over batches of [`Record`]s, each at its own [`Writer`], and go on; a thread of the archive writes what
//! has come meanwhile in one commit, and tells each worker the last of its batches that is durable. Nothing is read
//! while the server runs: [`open`] gives back all there is, once.
//!
//! The crate does not know what a hub is, when publications expire, or who publishes. How it is stored is SQLite's
//! business: `docs/decisions/12-archive.md` says why. The file is plain tables, and can be looked at with `sqlite3`
//! while no server has it.

mod archive;
mod database;
mod error;
mod index;
mod lane;
mod loaded;
mod lock;
mod log;
mod options;
mod record;
mod run;
mod stats;
mod tail;

pub use archive::{Archive, open, renew_epochs, set_aside};
pub use error::Error;
pub use lane::{Durable, Refused, Writer};
pub use loaded::{Channel, Loaded, Warning};
pub use options::{Fsync, Options};
pub use record::{Publication, Record, Version};
pub use run::boot_id;
pub use stats::Stats;
