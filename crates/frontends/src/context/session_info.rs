//! Descriptions of sessions for lists of connections.

pub use veche_nodes::ListConnections;

/// The description of a session for back ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionInfo<'a> {
    pub(crate) client: &'a str,
    pub(crate) handler: &'static str,
    pub(crate) transport: &'static str,
    pub(crate) protocol: &'static str,
    pub(crate) route: &'a str,
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
}

impl SessionInfo<'_> {
    pub(crate) fn of(handler: &'static str) -> Self {
        Self {
            handler,
            ..Self::default()
        }
    }
}
