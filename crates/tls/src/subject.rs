//! Whom a certificate is about.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// The names in a certificate, in its own order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSubject {
    /// The subject's first common name.
    pub common_name: Option<String>,
    /// Names of the domain name system, of the alternative names, as the others below.
    pub names: Vec<String>,
    /// Addresses of mail.
    pub emails: Vec<String>,
    /// URIs, such as those of SPIFFE.
    pub uris: Vec<String>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
}

impl CertificateSubject {
    /// Of a certificate as it came over the wire; `None` if it makes no sense.
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
