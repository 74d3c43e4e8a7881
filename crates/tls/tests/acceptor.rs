//! Tests of the server side: negotiation, client certificates and limits.

use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair};
use veche_tls::{
    Acceptor, Certificate, ClientAuth, ClientTrust, Error, Roots, Tickets, TlsFailure, TlsStream,
    TrustSource,
};

/// A temporary folder, which is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("veche-tls-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    /// Creates a self-signed certificate; returns the files of the certificate and its key.
    fn pair(&self, name: &str, params: &CertificateParams) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        let paths = ["pem", "key"].map(|end| self.0.join(format!("{name}.{end}")));
        std::fs::write(&paths[0], made.pem()).expect("written");
        std::fs::write(&paths[1], key.serialize_pem()).expect("written");
        let [certificate, key] = paths;
        (certificate, key)
    }

    /// Returns a certificate of a server named `localhost`.
    fn own(&self) -> Certificate {
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let (certificate, key) = self.pair("own", &params);
        Certificate::read(&certificate, &key).expect("a pair")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn acceptor(own: Certificate, clients: Option<&ClientAuth>) -> Acceptor {
    let tickets = Tickets::new().expect("random numbers");
    Acceptor::new(vec![own], clients, &["http/1.1"], &tickets).expect("good settings")
}

/// Passes bytes in both directions until neither side has output.
fn talk(client: &mut TlsStream, server: &mut TlsStream) -> Result<(), Error> {
    loop {
        let (mut there, mut back, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        client.send(&[], &mut there);
        server.receive(&there, &mut plain)?;
        server.send(&[], &mut back);
        client.receive(&back, &mut plain)?;
        if there.is_empty() && back.is_empty() {
            return Ok(());
        }
    }
}

#[test]
fn the_second_handshake_of_a_client_is_short() {
    let folder = Folder::new("short");
    let acceptor = acceptor(folder.own(), None);
    let trust = ClientTrust::new(&TrustSource::File(folder.0.join("own.pem"))).expect("readable");
    for time in 0..3 {
        let mut server = acceptor.accept().expect("a server");
        let mut client = trust.connect("localhost").expect("a name");
        assert_eq!(server.negotiated(), None);
        assert!(!server.has_begun());
        talk(&mut client, &mut server).expect("good TLS");
        let agreed = server.negotiated().expect("it is over");
        assert!(agreed.is_1_3 && server.has_begun());
        assert_eq!(agreed.is_resumed, time > 0);
        assert_eq!(server.peer_subject(), None);
    }
}

/// A ClientHello in records of one byte is accepted until it exceeds the size limit, which includes
/// the record headers.
#[test]
fn a_hello_is_short() {
    let folder = Folder::new("long");
    let mut server = acceptor(folder.own(), None).accept().expect("a server");
    let hello = [1, 0, 0xea, 0x60].into_iter().chain(std::iter::repeat(0));
    let mut sent = 0;
    for byte in hello {
        sent += 6;
        assert!(sent <= (16 << 10) + 6, "it never ends");
        match server.receive(&[22, 3, 1, 0, 1, byte], &mut Vec::new()) {
            Ok(()) => {}
            Err(Error::TooLong) => break,
            Err(other) => panic!("{other} after {sent}"),
        }
    }
    assert!(sent > 16 << 10, "{sent}");
}

#[test]
fn a_failure_is_reported_once() {
    let folder = Folder::new("once");
    let mut server = acceptor(folder.own(), None).accept().expect("a server");
    let trust = ClientTrust::new(&TrustSource::Insecure).expect("nothing is read");
    let mut client = trust.connect("localhost").expect("a client");
    talk(&mut client, &mut server).expect("a handshake");
    let garbage = b"\x17\x03\x03\x00\x14twenty bytes of what?";
    let mut plain = Vec::new();
    assert!(server.receive(garbage, &mut plain).is_err());
    assert!(server.has_output());
    server.send(&[], &mut Vec::new());
    assert!(server.receive(garbage, &mut plain).is_ok());
    assert!(!server.has_output() && plain.is_empty());
}

#[test]
fn non_tls_bytes_are_malformed() {
    let folder = Folder::new("malformed");
    let mut server = acceptor(folder.own(), None).accept().expect("a server");
    let error = server.receive(b"GET / HTTP/1.1\r\n\r\n", &mut Vec::new());
    assert_eq!(error.expect_err("no TLS").failure(), TlsFailure::Malformed);
    let mut alerts = Vec::new();
    for bytes in [
        &b"\x16\x03\x01\x00\x05garbage of another kind"[..],
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
        b"\x16\x03\x01\x00\x02\x01\x00\x15\x03\x01\x00\x02\x02\x00",
    ] {
        let mut server = acceptor(folder.own(), None).accept().expect("a server");
        let result = server.receive(bytes, &mut Vec::new());
        assert!(result.is_err(), "{bytes:?}");
        alerts.push(server.has_output());
    }
    // Only the three complete but invalid messages get an alert. The first input is an incomplete
    // message, and in the last case the peer has sent an alert itself.
    assert_eq!(alerts, [false, true, true, true, false]);
}

#[test]
fn a_client_without_certificate_is_distinguished() {
    let folder = Folder::new("without");
    let own = folder.own();
    let clients = ClientAuth {
        roots: Roots::read(&folder.0.join("own.pem")).expect("readable"),
        is_required: true,
    };
    let mut server = acceptor(own, Some(&clients)).accept().expect("a server");
    let trust = ClientTrust::new(&TrustSource::File(folder.0.join("own.pem"))).expect("readable");
    let mut client = trust.connect("localhost").expect("a name");
    let error = talk(&mut client, &mut server).expect_err("nothing was shown");
    assert_eq!(error.failure(), TlsFailure::Certificate);
    assert!(server.has_output(), "the alert");
}

#[test]
fn a_certificate_has_names_and_validity() {
    let folder = Folder::new("says");
    let names = vec![
        "A.example".to_owned(),
        "*.b.example".to_owned(),
        "10.0.0.1".to_owned(),
    ];
    let mut params = CertificateParams::new(names).expect("names");
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2034, 1, 1);
    let (certificate, key) = folder.pair("says", &params);
    let read = Certificate::read(&certificate, &key).expect("a pair");
    assert_eq!(read.names(), ["a.example", "*.b.example", "10.0.0.1"]);
    assert_eq!(read.valid_from_s(), 1_704_067_200);
    assert_eq!(read.valid_until_s(), 2_019_686_400);
    assert_eq!(read.file(), certificate);
    let missing = Certificate::read(Path::new("/nowhere/x.pem"), &key).expect_err("no file");
    assert_eq!(missing.to_string(), "/nowhere/x.pem: there is no such file");
}

/// Performs the handshake of a client that offers these ALPN protocols; returns the server's side and its
/// certificate.
fn shown(acceptor: &Acceptor, name: &str, offered: &[&str]) -> Result<(TlsStream, Vec<u8>), Error> {
    use std::sync::Arc;

    use rustls::ClientConnection;
    use rustls::pki_types::ServerName;

    let trust = ClientTrust::new(&TrustSource::Insecure).expect("nothing is read");
    let mut config = (*trust.config()).clone();
    config.alpn_protocols = offered
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut server = acceptor.accept().expect("a server");
    while client.is_handshaking() {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut there).expect("memory");
        }
        // The ClientHello is passed byte by byte, since it may arrive in any pieces.
        let result = there
            .chunks(1)
            .try_for_each(|byte| server.receive(byte, &mut Vec::new()));
        server.send(&[], &mut back);
        let mut rest = &back[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory");
            let processed = client.process_new_packets().map(|_| ());
            assert_eq!(
                processed.is_err(),
                result.is_err(),
                "the client gets the alert: {processed:?}"
            );
        }
        result?;
    }
    let certificate = client.peer_certificates().expect("shown")[0].to_vec();
    // The client's last message completes the handshake of the server too.
    let mut last = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut last).expect("memory");
    }
    server.receive(&last, &mut Vec::new())?;
    Ok((server, certificate))
}

#[test]
fn challenges_are_served_only_to_acme_clients() {
    use rustls::pki_types::PrivateKeyDer;

    let folder = Folder::new("proofs");
    // Clients have to present a certificate, except for ACME clients.
    let clients = ClientAuth {
        roots: {
            folder.own();
            Roots::read(&folder.0.join("own.pem")).expect("readable")
        },
        is_required: true,
    };
    let alpn_challenges = veche_tls::AlpnChallenges::default();
    let own = folder.own();
    let usual = acceptor(own, None);
    let usual = usual
        .with_challenges(&alpn_challenges)
        .expect("good settings");
    let closed = acceptor(folder.own(), Some(&clients));
    let closed = closed
        .with_challenges(&alpn_challenges)
        .expect("good settings");
    let none = Acceptor::new(
        Vec::new(),
        None,
        &["http/1.1"],
        &Tickets::new().expect("random"),
    );
    let none = none.and_then(|none| none.with_challenges(&alpn_challenges));
    let none = none.expect("good settings");

    let key = KeyPair::generate().expect("a key");
    let made = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
    let made = made.self_signed(&key).expect("a certificate");
    let der = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let proof = alpn_challenges
        .show("A.example", made.der().clone(), der)
        .expect("good");
    for acceptor in [&usual, &closed, &none] {
        let (server, certificate) = shown(acceptor, "a.example", &["acme-tls/1"]).expect("shown");
        assert!(server.is_challenge() && server.negotiated().is_some());
        assert!(certificate == made.der().to_vec());
    }
    // A client that requests a challenge that is not pending has no protocol in common with the server. That is not
    // counted as the server's fault.
    for acceptor in [&usual, &closed] {
        let error = shown(acceptor, "b.example", &["acme-tls/1"]).expect_err("not ordered");
        assert_eq!(error.failure(), TlsFailure::Incompatible);
    }
    // A client that also offers other protocols is treated as an ordinary client.
    for offered in [&["acme-tls/1", "http/1.1"][..], &["http/1.1"], &[]] {
        let (server, certificate) = shown(&usual, "a.example", offered).expect("served");
        assert!(!server.is_challenge());
        assert!(certificate != made.der().to_vec());
        let error = shown(&none, "a.example", offered).expect_err("there is none");
        assert_eq!(error.failure(), TlsFailure::NoCertificate);
    }
    drop(proof);
    let error = shown(&usual, "a.example", &["acme-tls/1"]).expect_err("it is over");
    assert_eq!(error.failure(), TlsFailure::Incompatible);
    // Bytes that are no ClientHello get an alert.
    let mut server = usual.accept().expect("a server");
    assert!(
        server
            .receive(&[22, 3, 1, 0, 4, 9, 9, 9, 9], &mut Vec::new())
            .is_err()
    );
    assert!(server.has_output());
}
