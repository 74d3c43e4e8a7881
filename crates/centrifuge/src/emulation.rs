//! The envelope of commands from a client whose connection only receives: the client sends its commands in separate
//! HTTP requests.

use std::borrow::Cow;
use std::fmt;

/// A POST request, to any node, with commands of a client whose connection only receives (HTTP streaming or server-sent
/// events).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct EmulationBody<'a> {
    /// The session id from the client's connect reply.
    pub session: Cow<'a, str>,
    /// The node id from the client's connect reply.
    pub node: Cow<'a, str>,
    /// Commands in the encoding of the envelope.
    pub data: Cow<'a, [u8]>,
}

impl fmt::Debug for EmulationBody<'_> {
    /// Omits the session id, because it authorises commands, and the content of the commands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulation")
            .field("node", &self.node)
            .field("data_bytes", &self.data.len())
            .finish_non_exhaustive()
    }
}
