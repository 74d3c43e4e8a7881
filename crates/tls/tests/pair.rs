//! Tests of client and server together, with temporary certificates. The test passes the bytes between them.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::generate_simple_self_signed;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use veche_tls::{ClientTrust, Error, TlsStream, TrustSource};

/// Creates the server side for `name`; returns it with the file of its certificate.
fn server(test: &str, name: &str) -> (TlsStream, PathBuf) {
    let made = generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate");
    let file = std::env::temp_dir().join(format!("veche-tls-{test}-{}.pem", std::process::id()));
    std::fs::write(&file, made.cert.pem()).expect("written");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a pair");
    let connection = ServerConnection::new(Arc::new(config)).expect("a server");
    (TlsStream::new(connection.into()), file)
}

/// Passes the output of each side to the other, in pieces of at most `piece` bytes, until neither has output.
fn talk(
    client: &mut TlsStream,
    server: &mut TlsStream,
    piece: usize,
) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    loop {
        let mut wire = Vec::new();
        client.send(&[], &mut wire);
        for piece in wire.chunks(piece) {
            server.receive(piece, &mut to_server)?;
        }
        let mut back = Vec::new();
        server.send(&[], &mut back);
        for piece in back.chunks(piece) {
            client.receive(piece, &mut to_client)?;
        }
        if wire.is_empty() && back.is_empty() {
            return Ok((to_client, to_server));
        }
    }
}

/// Encrypts `plain` with `from`, passes the output to `to`, and returns what `to` decrypts.
fn carry(from: &mut TlsStream, plain: &[u8], to: &mut TlsStream) -> Vec<u8> {
    let (mut wire, mut received) = (Vec::new(), Vec::new());
    from.send(plain, &mut wire);
    to.receive(&wire, &mut received).expect("good TLS");
    received
}

#[test]
fn bytes_pass_from_end_to_end() {
    for piece in [1, 7, 100_000] {
        let (mut server, file) = server("carries", "localhost");
        let trust = ClientTrust::new(&TrustSource::File(file)).expect("a certificate");
        let mut client = trust.connect("localhost").expect("a name");
        // Data that is sent before the handshake is buffered until the handshake is complete.
        assert_eq!(carry(&mut client, b"early", &mut server), b"");
        assert!(client.is_handshaking());
        let (_, received) = talk(&mut client, &mut server, piece).expect("good TLS");
        assert_eq!(received, b"early");
        assert!(!client.is_handshaking() && !server.is_handshaking());
        let long: Vec<u8> = (0..300_000).map(|i| i as u8).collect();
        assert_eq!(carry(&mut client, &long, &mut server), long);
        assert_eq!(carry(&mut server, &long, &mut client), long);
        assert!(!client.has_ended());
        let mut end = Vec::new();
        server.close(&mut end);
        client.receive(&end, &mut Vec::new()).expect("good TLS");
        assert!(client.has_ended() && !server.has_ended());
    }
}

#[test]
fn a_certificate_has_to_be_believed_and_for_that_name() {
    let (_, other) = server("other", "localhost");
    let cases = [
        (TrustSource::System, "localhost", Some("UnknownIssuer")),
        (
            TrustSource::File(other),
            "localhost",
            Some("invalid peer certificate"),
        ),
        (TrustSource::Insecure, "elsewhere.example", None),
    ];
    for (trust_source, name, expected) in cases {
        let (mut server, _) = server("judged", "localhost");
        let trust = ClientTrust::new(&trust_source).expect("readable");
        let mut client = trust.connect(name).expect("a name");
        let result = talk(&mut client, &mut server, 1000);
        match expected {
            None => assert!(result.is_ok(), "{trust_source:?}"),
            Some(words) => {
                let error = result.expect_err("not believed").to_string();
                assert!(error.contains(words), "{trust_source:?}: {error}");
                assert!(client.has_output(), "the alert");
            }
        }
    }
    let (mut server, file) = server("name", "localhost");
    let trust = ClientTrust::new(&TrustSource::File(file)).expect("readable");
    let mut client = trust.connect("elsewhere.example").expect("a name");
    let error = talk(&mut client, &mut server, 1000).expect_err("another's");
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

#[test]
fn non_tls_bytes_and_invalid_certificates_are_errors() {
    let trust = ClientTrust::new(&TrustSource::Insecure).expect("no files");
    let mut client = trust.connect("127.0.0.1").expect("an address");
    let error = client.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n", &mut Vec::new());
    assert!(error.is_err());
    assert!(matches!(trust.connect("a b"), Err(Error::Name(_))));
    let missing =
        ClientTrust::new(&TrustSource::File("/nowhere/ca.pem".into())).expect_err("no file");
    assert!(
        missing.to_string().starts_with("/nowhere/ca.pem: "),
        "{missing}"
    );
    let empty = std::env::temp_dir().join(format!("veche-tls-empty-{}", std::process::id()));
    std::fs::write(&empty, "nothing").expect("written");
    let error = ClientTrust::new(&TrustSource::File(empty.clone())).expect_err("no certificate");
    assert!(
        error.to_string().contains("contains no certificate"),
        "{error}"
    );
    let _ = std::fs::remove_file(empty);
}
