//! TLS for the clients of an endpoint.

use veche_tls::{Believe, Error, Tls};

use crate::plan::TlsPlan;

/// TLS configuration shared by the clients of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    trust: veche_tls::Trust,
    host: String,
}

impl Trust {
    /// `host` is the name that the certificate must be for.
    pub(crate) fn new(plan: &TlsPlan, host: &str) -> Result<Self, Error> {
        let believe = match &plan.ca {
            _ if plan.insecure => Believe::Anybody,
            Some(file) => Believe::File(file.clone()),
            None => Believe::System,
        };
        let mut trust = veche_tls::Trust::new(&believe)?;
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

    pub(crate) fn connect(&self) -> Result<Box<Tls>, Error> {
        self.trust.connect(&self.host)
    }
}
