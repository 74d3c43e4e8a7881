//! The history of channels on disk, so that a restart and a `kill -9` lose nothing: unexpired publications, and each
//! stream's epoch, top offset and version.
//!
//! Each worker submits batches of [`ArchiveRecord`]s through its own [`Writer`] and continues; a thread of the archive commits
//! the batches that arrived meanwhile as one group, and reports the last durable batch to each worker.
//! Nothing is read while the server runs: [`open`] returns the whole content once.
//!
//! The crate does not depend on hubs, expiry or publishers. Storage is SQLite; `docs/decisions/12-archive.md` explains
//! why. The file consists of plain tables and can be inspected with `sqlite3` while no server uses it.

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
pub use record::{ArchiveRecord, StoredPublication, StoredVersion};
pub use run_state::boot_id;
pub use stats::ArchiveStats;
