//! Opening files where another user may have put something else in their place.
//!
//! A supervisor that is root opens files in folders that its server process, which belongs to an unprivileged user, may
//! write. There a name can lead to a file of root's (by a symbolic or a hard link), to a FIFO that holds up whoever opens
//! it, or to a device. So:
//!
//! - What is written is a regular file with one name, of a trusted owner (root, the caller, the user it is opened for),
//!   and its name is never followed if it is a symbolic link ([`WriteOptions`]).
//! - What is read is a regular file ([`read`]).
//! - Nothing waits: a FIFO or a device is an error at once.
//! - Owner and mode change by descriptor, and only of what the same call has made; a file that has to be private and is
//!   the caller's own loses the rights of others.
//! - Among folders, a symbolic link is followed by root only if it belongs to root, or leads to what its own owner has
//!   anyway. Other users follow links as the kernel does: they have nothing to give away.
//!
//! What is in the files is not known here.

mod fault;
mod folder;
mod lock_holder;
mod pinned_path;
mod read;
mod walk;
mod write;

pub use fault::FileFault;
pub use folder::make_folder;
pub use lock_holder::lock_holder;
pub use pinned_path::PinnedPath;
pub use read::read;
pub use write::{OpenedFile, Owner, WriteOptions};
