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
mod options;
mod record;
mod run_state;
mod stats;
mod wal_tail;
mod writer_thread;

pub use archive::{Archive, open, renew_epochs, set_aside};
pub use error::Error;
pub use lane::{AppendError, DurableBatch, Writer};
pub use loaded::{LoadedStream, LoadedStreams, Warning};
pub use options::{FsyncPolicy, Options};
pub use record::{Record, StoredPublication, StoredVersion};
pub use run_state::boot_id;
pub use stats::ArchiveStats;
