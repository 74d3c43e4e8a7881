//! What routes and the configuration know of a client protocol.

/// One client protocol; each folder of `sessions` has its own.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientProtocol {
    /// The route's `handler`, and what back ends read of a session.
    pub name: &'static str,
    /// The methods that a route of it serves.
    pub methods: &'static [&'static str],
    /// Directives of a route that mean something to it, beside those of all routes that open WebSockets.
    pub options: &'static [&'static str],
}

impl ClientProtocol {
    /// Whether a directive of a route means something to it.
    #[must_use]
    pub fn accepts_method(&self, option: &str) -> bool {
        self.options.contains(&option)
    }
}
