//! The state of connections that is kept between their events.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use veche_runtime::Attributes;
use veche_types::ConnectionId;

/// A connection known to the application.
#[derive(Debug, Default)]
pub(crate) struct KnownConnection {
    /// The user, if known.
    pub(crate) user: Option<String>,
    /// The attributes that the application has set on the connection.
    pub(crate) attributes: Attributes,
    /// Whether an event of the connection is being handled; later messages wait until it is complete.
    pub(crate) is_busy: bool,
    /// Whether the connection is closing, so no data can be sent to it.
    pub(crate) is_closing: bool,
    /// The close code and reason, if the connection closed while an event was being handled. They are reported to the
    /// application after that event.
    pub(crate) end: Option<(u16, String)>,
}

pub(crate) type KnownConnections = HashMap<ConnectionId, KnownConnection, FixedState>;
