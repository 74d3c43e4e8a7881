//! The state of connections between their events.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use veche_runtime::Attributes;
use veche_types::ConnectionId;

/// A connection that the application knows.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// The user, where one is known.
    pub(crate) user: Option<String>,
    /// The application's data of the connection.
    pub(crate) attributes: Attributes,
    /// An event of it is being handled; messages behind it are not handed over.
    pub(crate) is_busy: bool,
    /// Nothing can be sent to it any more.
    pub(crate) is_closing: bool,
    /// The code and the reason of its end, behind the event that is being handled.
    pub(crate) end: Option<(u16, String)>,
}

pub(crate) type Connections = HashMap<ConnectionId, Connection, FixedState>;
