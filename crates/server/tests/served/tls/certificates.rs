//! The test CA, and the certificates that it issues.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    date_time_ymd,
};

/// A certificate authority with its key, and a folder for its files.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    /// Creates a test CA with its own folder.
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!(
            "veche-authority-{}-{name}-{number}",
            std::process::id()
        ));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("ca.pem"), issuer.pem()).expect("written");
        Self { issuer, folder }
    }

    /// Returns the file of the authority's own certificate.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Issues a server certificate for these names, as `NAME.pem` and `NAME.key` in a folder.
    pub(super) fn server(&self, names: &[&str], folder: &Path, name: &str) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.sign(CertificateParams::new(names).expect("names"), folder, name);
    }

    /// Issues a server certificate that is due for renewal: of its twelve years more than one is
    /// left, but less than a third.
    pub(super) fn old_server(&self, names: &[&str], folder: &Path, name: &str) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        let since = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        let year = 1970 + i32::try_from(since.as_secs() / 31_556_952).expect("a year");
        params.not_before = date_time_ymd(year - 10, 1, 1);
        params.not_after = date_time_ymd(year + 1, 12, 31);
        self.sign(params, folder, name);
    }

    /// Issues a client certificate with a common name and an email address, either of which may be the user name.
    pub(super) fn client(&self, common_name: &str, email: &str, name: &str) -> PathBuf {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        if !email.is_empty() {
            let email = email.try_into().expect("ASCII");
            params.subject_alt_names.push(SanType::Rfc822Name(email));
        }
        self.sign(params, &self.folder, name);
        self.folder.join(name)
    }

    fn sign(&self, params: CertificateParams, folder: &Path, name: &str) {
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).expect("written");
        fs::write(folder.join(format!("{name}.pem")), signed.pem()).expect("written");
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
