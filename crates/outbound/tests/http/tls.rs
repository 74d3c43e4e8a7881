//! Tests HTTPS calls, with certificates that the tests create.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use veche_calls::{CallErrorKind, CertificateTrust, HttpRequest};

use crate::server::{Server, head, ok};
use crate::{Bench, get, header};

pub(crate) type TlsServerStream = StreamOwned<ServerConnection, TcpStream>;

/// A certificate authority of the test.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(crate) file: PathBuf,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let file = std::env::temp_dir().join(format!("veche-{name}-{}.pem", std::process::id()));
        std::fs::write(&file, issuer.pem()).expect("a file");
        Self { issuer, file }
    }

    /// Starts a server for these names that sends the same response to each request; its certificate has expired if
    /// `is_expired`.
    fn serve(&self, names: &[&str], is_expired: bool) -> Server {
        self.serve_by(names, is_expired, |stream| {
            while head(stream).is_some() {
                let _ = stream.write_all(ok("encrypted").as_bytes());
            }
        })
    }

    /// Starts a server that handles each connection with a function of the test.
    pub(crate) fn serve_by(
        &self,
        names: &[&str],
        is_expired: bool,
        handle: impl Fn(&mut TlsServerStream) + Send + Sync + 'static,
    ) -> Server {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        if is_expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate");
        let config = Arc::new(config);
        Server::new(move |stream, _| {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            handle(&mut StreamOwned::new(connection, stream));
        })
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn ask(server: &Server, host: &str, trust: CertificateTrust) -> HttpRequest {
    let mut fetch = get(&format!("https://{host}:{}/", server.address.port()));
    fetch.trust = trust;
    fetch
}

#[test]
fn certificates_are_looked_at() {
    let mut bench = Bench::new();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let file = |authority: &Authority| CertificateTrust::File(authority.file.clone());
    let server = ours.serve(&["localhost", "127.0.0.1"], false);
    for host in ["localhost", "127.0.0.1"] {
        for _ in 0..3 {
            assert_eq!(bench.text(ask(&server, host, file(&ours))), "encrypted");
        }
    }
    assert_eq!(server.accepted(), 2, "they are kept");
    assert_eq!(
        bench.text(ask(&server, "localhost", CertificateTrust::Insecure)),
        "encrypted"
    );
    let mut refused = |server: &Server, host: &str, trust: CertificateTrust, words: &str| {
        let fault = bench.fault(ask(server, host, trust));
        assert_eq!(fault.kind, CallErrorKind::Broken);
        assert!(
            fault.words.contains(&format!("TLS handshake with {host}:")),
            "{fault:?}"
        );
        assert!(fault.words.contains(words), "{fault:?}");
    };
    refused(
        &server,
        "localhost",
        CertificateTrust::System,
        "UnknownIssuer",
    );
    refused(&server, "localhost", file(&theirs), "certificate");
    let other = ours.serve(&["other.test"], false);
    refused(&other, "localhost", file(&ours), "not valid for");
    let expired = ours.serve(&["localhost"], true);
    refused(&expired, "localhost", file(&ours), "expired");
    let plain = Server::new(|mut stream, _| {
        let _ = stream.write_all(ok("plain").as_bytes());
        crate::until_gone(&mut stream);
    });
    refused(&plain, "127.0.0.1", file(&ours), "");
    assert_eq!(
        bench.text(ask(&expired, "localhost", CertificateTrust::Insecure)),
        "encrypted"
    );

    let missing = CertificateTrust::File("/nowhere.pem".into());
    let fault = bench.fault(ask(&server, "localhost", missing));
    assert_eq!(fault.kind, CallErrorKind::Invalid);
    assert!(
        fault.words.contains("/nowhere.pem: there is no such file"),
        "{fault:?}"
    );
    // A connection made without verification is not reused for a call that verifies.
    assert!(bench.ask(ask(&expired, "localhost", file(&ours))).is_err());
}

#[test]
fn a_certificate_that_is_replaced_is_read_again() {
    let mut bench = Bench::new();
    let (ours, theirs) = (Authority::new("first"), Authority::new("second"));
    let server = theirs.serve(&["localhost"], false);
    let file = CertificateTrust::File(ours.file.clone());
    assert!(bench.ask(ask(&server, "localhost", file.clone())).is_err());
    std::thread::sleep(Duration::from_millis(20));
    std::fs::copy(&theirs.file, &ours.file).expect("a copy");
    let reply = bench
        .ask(ask(&server, "localhost", file))
        .expect("an answer");
    assert_eq!(header(&reply, "content-length"), Some("9"));
}

#[test]
fn a_server_that_never_speaks_tls() {
    let mut bench = Bench::new();
    let silent = Server::new(|mut stream, _| crate::until_gone(&mut stream));
    let mut fetch = ask(&silent, "127.0.0.1", CertificateTrust::Insecure);
    fetch.connect_timeout = Duration::from_millis(200);
    let fault = bench.fault(fetch);
    let at = silent.address;
    assert_eq!(fault.kind, CallErrorKind::Unreachable, "nothing was sent");
    assert_eq!(
        fault.words,
        format!("http: timeout after 0.2 s connecting to {at}")
    );
    silent.until_empty();
}
