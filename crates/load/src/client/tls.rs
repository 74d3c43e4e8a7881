//! TLS for the clients of an endpoint.

use veche_tls::{Error, TlsStream, TrustSource};

use crate::plan::TlsPlan;

/// TLS configuration shared by the clients of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct ClientTls {
    trust: veche_tls::ClientTrust,
    host: String,
}

impl ClientTls {
    /// Creates the configuration. `host` is the name for which the server's certificate must be
    /// valid.
    pub(crate) fn new(plan: &TlsPlan, host: &str) -> Result<Self, Error> {
        let trust_source = match &plan.ca {
            _ if plan.insecure => TrustSource::Insecure,
            Some(file) => TrustSource::File(file.clone()),
            None => TrustSource::System,
        };
        let mut trust = veche_tls::ClientTrust::new(&trust_source)?;
        if plan.full_handshakes {
            trust = trust.without_resumption();
        }
        // An invalid name is reported before the run begins.
        trust.connect(host)?;
        Ok(Self {
            trust,
            host: host.to_owned(),
        })
    }

    pub(crate) fn connect(&self) -> Result<Box<TlsStream>, Error> {
        self.trust.connect(&self.host)
    }
}
