//! Static files: the answer to a request for one, from the plan that `static_files` makes.

use std::io;
use std::path::Path;

use veche_hub::SessionId;
use veche_proto::http::{Head, Status};

use crate::http::{Reply, Stream};
use crate::shared::Shared;

/// A body that is read piece by piece.
pub trait Source {
    /// Appends at most `max` bytes; 0 is the end.
    fn read(&mut self, max: usize, out: &mut Vec<u8>) -> io::Result<usize>;
}

/// Where static files come from.
pub trait Files {
}

pub(crate) fn answer(id: SessionId, head: &Head<'_>, root: &Path, below: &str, shared: &mut Shared) -> Option<Stream> {
    let _ = (id, head, root, below, shared, Status::OK);
    None
}
