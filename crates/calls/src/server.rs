//! Where a server is that calls go to, and who is let in.

use std::fmt;

/// A server and an account on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAccount {
    /// A name or an address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The account; none if the server asks for none.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// How the way there is protected.
    pub tls: TlsMode,
}

impl ServerAccount {
    /// Returns the name of connections to what has that name there, for those that have no other.
    #[must_use]
    pub fn pool_name(&self, name: &str) -> String {
        let Self { host, port, .. } = self;
        match host.contains(':') {
            true => format!("[{host}]:{port}/{name}"),
            false => format!("{host}:{port}/{name}"),
        }
    }
}

/// What must not be in a log.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Protection of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TlsMode {
    /// None.
    #[default]
    Off,
    /// The server's certificate has to be for its host, from an authority that everybody trusts.
    Public,
    /// The same, from an authority whose certificate is in that PEM file.
    Authority(String),
}
