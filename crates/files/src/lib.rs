//! Opening files safely where another user may have replaced them.
//!
//! A supervisor running as root opens files in folders that its server process, running as an unprivileged user, may
//! write. In such a folder a name can lead to one of root's files (through a symbolic or hard link), to a FIFO that
//! blocks the open, or to a device. Therefore:
//!
//! - A file to write is a regular file with one name and a trusted owner (root, the caller, or the user it is opened
//!   for), and its name is never followed if it is a symbolic link ([`WriteOptions`]).
//! - A file to read is a regular file ([`read`]).
//! - Nothing blocks: a FIFO or a device is an error at once.
//! - Owner and mode are changed by descriptor, and only of files created by the same call; a file that has to be
//!   private and belongs to the caller loses the permissions of others.
//! - Among the folders of a path, root follows a symbolic link only if it belongs to root, or leads to a file or folder
//!   of the link's owner. Other users follow links as the kernel does: they have no privileges to abuse.
//!
//! The crate does not interpret file contents.

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
