//! Properties of a client protocol that routes and the configuration use.

/// A client protocol; each folder of `sessions` defines one.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientProtocol {
    /// The protocol's name: the `handler` of a route, and the protocol in descriptions of sessions for back ends.
    pub name: &'static str,
    /// The HTTP methods that routes of the protocol serve.
    pub methods: &'static [&'static str],
    /// The route directives of this protocol, in addition to those of all WebSocket routes.
    pub options: &'static [&'static str],
}

impl ClientProtocol {
    /// Returns whether routes of this protocol accept the directive named `option`, in addition to those of all
    /// WebSocket routes.
    #[must_use]
    pub fn accepts_method(&self, option: &str) -> bool {
        self.options.contains(&option)
    }
}
