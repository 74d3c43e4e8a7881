//! Tests that a client with a certificate can resume its session only while the certificate would still be accepted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use veche_tls::{Acceptor, Certificate, ClientAuth, Roots, Tickets, TlsStream};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        Self {
            der: made.der().clone(),
            pem: made.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Signs a certificate for `name` that is valid from now on for `life`; returns it with its key.
    #[expect(
        clippy::disallowed_methods,
        reason = "certificates hold by the wall clock"
    )]
    fn sign(&self, name: &str, life: Duration) -> (rcgen::Certificate, KeyPair) {
        let now = SystemTime::now();
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = (now - Duration::from_secs(60)).into();
        params.not_after = (now + life).into();
        let key = KeyPair::generate().expect("a key");
        let made = params.signed_by(&key, &self.issuer).expect("signed");
        (made, key)
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("veche-resumption-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    fn server(&self, authority: &Authority) -> Certificate {
        let (made, key) = authority.sign("localhost", Duration::from_secs(3_600));
        let certificate = self.write("own.pem", &made.pem());
        let key = self.write("own.key", &key.serialize_pem());
        Certificate::read(&certificate, &key).expect("a pair")
    }

    fn clients(&self, authorities: &[&Authority], is_required: bool) -> ClientAuth {
        let pems: String = authorities.iter().map(|one| one.pem.as_str()).collect();
        let roots = Roots::read(&self.write("ca.pem", &pems)).expect("readable");
        ClientAuth { roots, is_required }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the configuration of a client that trusts the authority `servers` and presents the certificate `shown`, if
/// any.
fn client(
    version: &'static SupportedProtocolVersion,
    servers: &Authority,
    shown: Option<(rcgen::Certificate, KeyPair)>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(servers.der.clone()).expect("a root");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots);
    Arc::new(match shown {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
            builder
                .with_client_auth_cert(vec![certificate.der().clone()], key)
                .expect("a pair")
        }
    })
}

/// Connects; returns whether a session was resumed and whether the client presented a certificate. Returns an error
/// if the server refuses the client.
fn connect(acceptor: &Acceptor, config: &Arc<ClientConfig>) -> Result<(bool, bool), String> {
    let name = ServerName::try_from("localhost").expect("a name");
    let client = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let mut client = TlsStream::new(client.into());
    let mut server = acceptor.accept().expect("a server");
    loop {
        let (mut there, mut back, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        client.send(&[], &mut there);
        let received = server.receive(&there, &mut plain);
        received.map_err(|error| error.to_string())?;
        server.send(&[], &mut back);
        let received = client.receive(&back, &mut plain);
        received.map_err(|error| error.to_string())?;
        if there.is_empty() && back.is_empty() {
            let agreed = server.negotiated().expect("the handshake is over");
            return Ok((agreed.is_resumed, server.peer_subject().is_some()));
        }
    }
}

#[test]
fn a_ticket_does_not_revive_an_expired_certificate() {
    for version in VERSIONS {
        for is_required in [true, false] {
            let folder = Folder::new(&format!("expired-{:?}-{is_required}", version.version));
            let authority = Authority::new("one");
            let clients = folder.clients(&[&authority], is_required);
            let own = folder.server(&authority);
            let tickets = Tickets::new().expect("random numbers");
            let acceptor = Acceptor::new(vec![own], Some(&clients), &[], &tickets);
            let acceptor = acceptor.expect("good settings");
            let shown = authority.sign("ann", Duration::from_secs(3));
            let config = client(version, &authority, Some(shown));
            assert_eq!(connect(&acceptor, &config), Ok((false, true)));
            assert_eq!(connect(&acceptor, &config), Ok((true, true)));
            std::thread::sleep(Duration::from_secs(4));
            let refused = connect(&acceptor, &config).expect_err("it has expired");
            assert!(refused.contains("expired"), "{version:?}: {refused}");
        }
    }
}

#[test]
fn a_revoked_authority_takes_its_tickets_along() {
    for version in VERSIONS {
        let folder = Folder::new(&format!("revoked-{:?}", version.version));
        let (kept, revoked) = (Authority::new("kept"), Authority::new("revoked"));
        let tickets = Tickets::new().expect("random numbers");
        let acceptor = |authorities: &[&Authority]| {
            let clients = folder.clients(authorities, true);
            let own = folder.server(&kept);
            Acceptor::new(vec![own], Some(&clients), &[], &tickets).expect("good settings")
        };
        let both = acceptor(&[&kept, &revoked]);
        let life = Duration::from_secs(3_600);
        let ann = client(version, &kept, Some(kept.sign("ann", life)));
        let eve = client(version, &kept, Some(revoked.sign("eve", life)));
        for config in [&ann, &eve] {
            assert_eq!(connect(&both, config), Ok((false, true)));
            assert_eq!(connect(&both, config), Ok((true, true)));
        }
        // The keys of the tickets are the same, so that only the changed authorities matter.
        let one = acceptor(&[&kept]);
        assert_eq!(connect(&one, &ann), Ok((true, true)));
        let refused = connect(&one, &eve).expect_err("nothing vouches for it");
        assert!(refused.contains("UnknownIssuer"), "{version:?}: {refused}");
    }
}

#[test]
fn a_ticket_without_a_certificate_does_not_open_a_listener_that_requires_one() {
    for version in VERSIONS {
        let folder = Folder::new(&format!("without-{:?}", version.version));
        let authority = Authority::new("one");
        let tickets = Tickets::new().expect("random numbers");
        let acceptor = |clients: Option<&ClientAuth>| {
            let own = folder.server(&authority);
            Acceptor::new(vec![own], clients, &[], &tickets).expect("good settings")
        };
        let config = client(version, &authority, None);
        let open = acceptor(None);
        assert_eq!(connect(&open, &config), Ok((false, false)));
        assert_eq!(connect(&open, &config), Ok((true, false)));
        let closed = acceptor(Some(&folder.clients(&[&authority], true)));
        assert!(connect(&closed, &config).is_err());
    }
}
