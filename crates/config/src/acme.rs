//! `[acme]` once it has been checked: who issues certificates, and where they are kept.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::types::{CertificateOrigin, Config};

/// `[acme]`: one account with one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// The URL of the authority's directory (RFC 8555 section 7.1.1), `https` always.
    pub directory: String,
    /// Whom the authority may write to, with `mailto:` in front.
    pub contact: Vec<String>,
    /// The folder of all authorities' folders.
    pub cache: PathBuf,
    /// Who vouches for the authority's own server, if not the system's authorities.
    pub ca: Option<PathBuf>,
}

impl AcmeConfig {
    /// Where this authority's account and certificates are kept: what another one has issued is not taken for its own.
    pub fn folder(&self) -> PathBuf {
        let place = self.directory.trim_start_matches("https://");
        let safe = |c: char| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => c,
            _ => '-',
        };
        // A dot in front would hide it, and two would lead elsewhere.
        let name: String = place.trim_matches(['/', '.']).chars().map(safe).collect();
        self.cache.join(name)
    }

    /// The file of the certificate that is for these names, with its key in it: by the first of them, for people, and all,
    /// since others may be kept there that begin with the same one.
    pub fn file(&self, names: &[String]) -> PathBuf {
        let first = names.first().map_or("", String::as_str);
        // The names of files are shorter than the longest of hosts.
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

/// A certificate that is ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeCertificate {
    /// At least one, in small letters; the first is what the certificate is called.
    pub names: Vec<String>,
    /// Where it is kept, with its key in it.
    pub file: PathBuf,
}

impl CertificateOrigin {
    /// The files of the certificate and of its key; they may be one.
    pub fn files(&self) -> [&Path; 2] {
        match self {
            Self::Files(pair) => [&pair.certificate, &pair.key],
            Self::Acme(ordered) => [&ordered.file, &ordered.file],
        }
    }
}

impl Config {
    /// The certificates that are ordered, each once.
    pub fn ordered(&self) -> Vec<AcmeCertificate> {
        let mut all: Vec<AcmeCertificate> = Vec::new();
        let sealed = self.listeners.iter().filter_map(|l| l.tls.as_ref());
        for certificate in sealed.flat_map(|tls| &tls.certificates) {
            if let CertificateOrigin::Acme(ordered) = certificate
                && !all.contains(ordered)
            {
                all.push(ordered.clone());
            }
        }
        all
    }
}
