//! The address of a server, and the account for it.

use std::fmt;

/// A server and an account on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAccount {
    /// A host name or an address.
    pub host: String,
    /// The TCP port of the server.
    pub port: u16,
    /// The account; `None` if the server requires none.
    pub user: Option<String>,
    /// The password of the account, if any.
    pub password: Option<Secret>,
    /// Whether the connection uses TLS, and which authorities are trusted.
    pub tls: TlsMode,
}

impl ServerAccount {
    /// Returns the default name of the pool of connections to `name` on this server.
    #[must_use]
    pub fn pool_name(&self, name: &str) -> String {
        let Self { host, port, .. } = self;
        match host.contains(':') {
            true => format!("[{host}]:{port}/{name}"),
            false => format!("{host}:{port}/{name}"),
        }
    }
}

/// A secret with a redacted debug form.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Whether a connection uses TLS, and which authorities it trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TlsMode {
    /// TLS is off; the default mode.
    #[default]
    Off,
    /// TLS; the certificate has to match the host and be issued by an authority that the system
    /// trusts.
    Public,
    /// TLS; the certificate has to match the host and be issued by an authority in this PEM file.
    Authority(String),
}
