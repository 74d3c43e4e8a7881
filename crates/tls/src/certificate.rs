//! Server certificates with their keys: loading, validation and properties.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::Error;
use crate::subject::CertificateSubject;

/// Maximum length of a file in bytes, so that a wrong path does not fill the memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate chain with the private key of its first certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(crate) key: Arc<CertifiedKey>,
    file: PathBuf,
    names: Vec<String>,
    valid_from_s: i64,
    valid_until_s: i64,
    is_key_exposed: bool,
}

impl Certificate {
    /// Reads both PEM files, which may be the same.
    ///
    /// # Errors
    /// [`Error::File`] with the path of the faulty file: it can't be read, contains no certificate or no supported key,
    /// or the key does not match the certificate.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let pem = read_file(certificate)?;
        let chain = chain_of(&pem).map_err(|why| Error::file(certificate, why))?;
        let key_pem = read_file(key)?;
        let private = key_of(&key_pem).map_err(|why| Error::file(key, why))?;
        let provider = ring::default_provider();
        let private = provider
            .key_provider
            .load_private_key(private)
            .map_err(|_| {
                Error::file(
                    key,
                    "the key type is not supported: use ECDSA (P-256, P-384), Ed25519 or RSA",
                )
            })?;
        let (names, valid_from_s, valid_until_s) =
            parse_certificate(&chain[0]).map_err(|why| Error::file(certificate, why))?;
        let certified = CertifiedKey::new(chain, private);
        match certified.keys_match() {
            Ok(()) | Err(TlsError::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(_) => return Err(Error::file(key, not_its_key(certificate, &certified))),
        }
        Ok(Self {
            key: Arc::new(certified),
            file: certificate.to_owned(),
            names,
            valid_from_s,
            valid_until_s,
            is_key_exposed: is_world_readable(key),
        })
    }

    /// Returns the path of the certificate file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the DNS names, in lower case and possibly beginning with `*.`, and IP addresses of the certificate.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the start of the validity in Unix seconds.
    #[must_use]
    pub fn valid_from_s(&self) -> i64 {
        self.valid_from_s
    }

    /// Returns the end of the validity in Unix seconds.
    #[must_use]
    pub fn valid_until_s(&self) -> i64 {
        self.valid_until_s
    }

    /// Returns whether every user of the machine can read the key file.
    #[must_use]
    pub fn is_key_exposed(&self) -> bool {
        self.is_key_exposed
    }

    /// Returns how well the certificate matches a requested name, which must be in lower case.
    pub(crate) fn match_name(&self, name: &str) -> NameMatch {
        let below = name.split_once('.').map(|(_, parent)| parent);
        let mut fit = NameMatch::None;
        for own in &self.names {
            if own == name {
                return NameMatch::Exact;
            }
            // A wildcard stands for one label (RFC 9525, section 6.3).
            if below.is_some() && own.strip_prefix("*.") == below {
                fit = NameMatch::Wildcard;
            }
        }
        fit
    }
}

/// The result of [`Certificate::match_name`], ordered from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameMatch {
    None,
    Wildcard,
    Exact,
}

/// Reads a certificate or key file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    read_whole(path, veche_files::read(path))
}

/// Reads a file of any type, without the checks of [`read_file`]. Only for threads that may block and have no
/// privileges that a link could abuse.
pub(crate) fn read_slow(path: &Path) -> Result<Vec<u8>, Error> {
    read_whole(path, File::open(path))
}

fn read_whole(path: &Path, opened: io::Result<File>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    opened
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| Error::file(path, plain(&error)))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::file(path, "the file is longer than 1 MiB"));
    }
    Ok(bytes)
}

/// Formats a system error in plain words.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        _ => error.to_string(),
    }
}

/// Parses the certificates of a PEM file; returns at least one.
pub(crate) fn chain_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("it is not a PEM file: {error}"))?;
    if chain.is_empty() {
        let has_key = PrivateKeyDer::from_pem_slice(pem).is_ok();
        return Err(match has_key {
            true => "the file contains a key, but no certificate".to_owned(),
            false => {
                "the file contains no certificate; a PEM file has \"-----BEGIN CERTIFICATE-----\""
                    .to_owned()
            }
        });
    }
    Ok(chain)
}

fn key_of(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        pem::Error::NoItemsFound if has(pem, b"BEGIN ENCRYPTED PRIVATE KEY") => {
            "the key is encrypted with a passphrase, which is not supported; decrypt it with openssl pkey".to_owned()
        }
        pem::Error::NoItemsFound if has(pem, b"BEGIN CERTIFICATE") => {
            "the file contains a certificate, but no key".to_owned()
        }
        pem::Error::NoItemsFound => {
            "the file contains no key; a PEM file has \"-----BEGIN PRIVATE KEY-----\"".to_owned()
        }
        error => format!("it is not a PEM file: {error}"),
    })
}

fn has(text: &[u8], words: &[u8]) -> bool {
    text.windows(words.len()).any(|window| window == words)
}

/// Returns the names and the start and end of the validity.
fn parse_certificate(der: &CertificateDer<'_>) -> Result<(Vec<String>, i64, i64), String> {
    let (_, parsed) = X509Certificate::from_der(der)
        .map_err(|error| format!("the first certificate is malformed: {error}"))?;
    let subject = CertificateSubject::of(&parsed);
    let mut names: Vec<String> = subject
        .names
        .iter()
        .map(|name| name.to_ascii_lowercase())
        .collect();
    names.extend(subject.addresses.iter().map(ToString::to_string));
    if names.is_empty() {
        // Clients ignore the common name, but the server selects the certificate by it if there is no other name.
        names.extend(
            subject
                .common_name
                .iter()
                .map(|name| name.to_ascii_lowercase()),
        );
    }
    let validity = parsed.validity();
    Ok((
        names,
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    ))
}

/// Explains why a key does not match, naming the most common mistake.
fn not_its_key(file: &Path, certified: &CertifiedKey) -> String {
    let file = file.display();
    let own = certified.key.public_key();
    let place = certified.cert.iter().position(|certificate| {
        let parsed = X509Certificate::from_der(certificate);
        parsed.is_ok_and(|(_, parsed)| {
            own.as_deref()
                .is_some_and(|own| own == parsed.public_key().raw)
        })
    });
    match place {
        Some(place) => format!(
            "the key belongs to certificate {} of {file}; the server's own certificate must be the first one",
            place + 1
        ),
        None => format!("the key does not belong to the certificate in {file}"),
    }
}

/// Returns whether users other than the owner and group may read a file.
fn is_world_readable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}
