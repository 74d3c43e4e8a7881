//! The envelope of commands that do not come by the connection they are for.

use std::borrow::Cow;
use std::fmt;

/// What a client of a stream (HTTP, server-sent events) posts, to whichever node takes it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct EmulationBody<'a> {
    /// Of its connection, as it was told.
    pub session: Cow<'a, str>,
    /// On which its connection is, as it was told.
    pub node: Cow<'a, str>,
    /// Commands, in the encoding in which the envelope is.
    pub data: Cow<'a, [u8]>,
}

impl fmt::Debug for EmulationBody<'_> {
    /// Not the session, by which anybody could command it, nor the commands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulation")
            .field("node", &self.node)
            .field("data_bytes", &self.data.len())
            .finish_non_exhaustive()
    }
}
