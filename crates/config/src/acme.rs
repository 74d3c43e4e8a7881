//! The checked `[acme]` section: the certificate authority and the storage of certificates.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::types::{CertificateOrigin, Config};

/// `[acme]`: an account with a certificate authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// The URL of the authority's directory (RFC 8555 section 7.1.1); always `https`.
    pub directory: String,
    /// The contact addresses for the authority, as `mailto:` URLs.
    pub contact: Vec<String>,
    /// The folder that contains one folder for each certificate authority.
    pub cache: PathBuf,
    /// The certificates to trust for the authority's own server; `None`: those of the system.
    pub ca: Option<PathBuf>,
}

impl AcmeConfig {
    /// Returns the folder of this authority's account and certificates. Each authority has its own, so that their
    /// certificates are not mixed up.
    pub fn folder(&self) -> PathBuf {
        let place = self.directory.trim_start_matches("https://");
        let safe = |c: char| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => c,
            _ => '-',
        };
        // A leading dot would hide the folder, and the name `..` would lead to its parent.
        let name: String = place.trim_matches(['/', '.']).chars().map(safe).collect();
        self.cache.join(name)
    }

    /// Returns the file of the certificate and key for these names. The file name contains the
    /// first name, for readability, and a hash of all names, since several certificates may begin
    /// with the same name.
    pub fn file(&self, names: &[String]) -> PathBuf {
        let first = names.first().map_or("", String::as_str);
        // File names can't be as long as the longest host names.
        let first: String = first.chars().take(200).collect();
        let mut digest = Sha256::new();
        for name in names {
            digest.update(name);
            digest.update("\n");
        }
        let [a, b, c, d, ..] = <[u8; 32]>::from(digest.finalize());
        self.folder()
            .join(format!("{first}-{a:02x}{b:02x}{c:02x}{d:02x}.pem"))
    }
}

/// A certificate ordered by ACME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeCertificate {
    /// The host names in lower case; at least one. The name of `file` contains the first.
    pub names: Vec<String>,
    /// The file with the certificate and its key.
    pub file: PathBuf,
}

impl CertificateOrigin {
    /// Returns the files of the certificate and of its key, which may be the same.
    pub fn files(&self) -> [&Path; 2] {
        match self {
            Self::Files(pair) => [&pair.certificate, &pair.key],
            Self::Acme(ordered) => [&ordered.file, &ordered.file],
        }
    }
}

impl Config {
    /// Returns the ordered certificates without duplicates.
    pub fn ordered(&self) -> Vec<AcmeCertificate> {
        let mut all: Vec<AcmeCertificate> = Vec::new();
        let tls_configs = self.listeners.iter().filter_map(|l| l.tls.as_ref());
        for certificate in tls_configs.flat_map(|tls| &tls.certificates) {
            if let CertificateOrigin::Acme(ordered) = certificate
                && !all.contains(ordered)
            {
                all.push(ordered.clone());
            }
        }
        all
    }
}
