//! Where a server is that calls go to, and who is let in.

use std::fmt;

/// A server and an account on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// A name or an address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The account; none if the server asks for none.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// How the way there is protected.
    pub tls: Tls,
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
pub enum Tls {
    /// None.
    #[default]
    Off,
    /// The server's certificate has to be for its host, from an authority that everybody trusts.
    Public,
    /// The same, from an authority whose certificate is in that PEM file.
    Authority(String),
}
