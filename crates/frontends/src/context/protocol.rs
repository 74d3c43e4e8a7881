//! Properties of a client protocol for routes and the configuration.

/// A client protocol; each folder of `sessions` defines one.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientProtocol {
    /// Its name as `handler` of a route, and in descriptions of sessions for back ends.
    pub name: &'static str,
    /// The methods that its routes serve.
    pub methods: &'static [&'static str],
    /// Route directives for this protocol, in addition to those for all WebSocket routes.
    pub options: &'static [&'static str],
}

impl ClientProtocol {
    /// Returns whether a route directive applies to this protocol.
    #[must_use]
    pub fn accepts_method(&self, option: &str) -> bool {
        self.options.contains(&option)
    }
}
