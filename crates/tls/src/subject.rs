//! The identity in a certificate.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// The names in a certificate, each kind in the order of the certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSubject {
    /// The first common name of the subject.
    pub common_name: Option<String>,
    /// DNS names of the subject alternative names.
    pub names: Vec<String>,
    /// Email addresses of the alternative names.
    pub emails: Vec<String>,
    /// URIs of the alternative names, such as SPIFFE ids.
    pub uris: Vec<String>,
    /// IP addresses of the alternative names.
    pub addresses: Vec<IpAddr>,
}

impl CertificateSubject {
    /// Parses a DER certificate; `None` if it is malformed.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        Some(Self::of(&parsed))
    }

    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let common_name = certificate
            .subject()
            .iter_common_name()
            .next()
            .and_then(|name| name.as_str().ok())
            .map(str::to_owned);
        let mut subject = Self {
            common_name,
            ..Self::default()
        };
        let Ok(Some(alternative)) = certificate.subject_alternative_name() else {
            return subject;
        };
        for name in &alternative.value.general_names {
            match name {
                GeneralName::DNSName(name) => subject.names.push((*name).to_owned()),
                GeneralName::RFC822Name(name) => subject.emails.push((*name).to_owned()),
                GeneralName::URI(name) => subject.uris.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => subject.addresses.extend(address_of(bytes)),
                _ => {}
            }
        }
        subject
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    Some(<[u8; 16]>::try_from(bytes).ok()?.into())
}
