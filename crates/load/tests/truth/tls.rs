//! TLS end to end: accepted and refused certificates.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};
use veche_load::loads::LoadPlan;
use veche_load::loads::echo::EchoPlan;
use veche_load::payload::{PayloadContent, PayloadPlan};
use veche_load::plan::{Endpoint, TlsPlan};
use veche_load::report::Report;

use crate::support::{WebSocket, assert_clean, endpoint, plan, report, serve};

/// Starts an echo server with a certificate for `name`; returns its address and the certificate file.
fn server(name: &str) -> (SocketAddr, Pem) {
    let (address, pem, _) = counting_server(name);
    (address, pem)
}

/// Counts of a server's handshakes.
#[derive(Debug, Default)]
struct Handshakes {
    full: AtomicU32,
    resumed: AtomicU32,
}

/// Starts the same server as `server`, and also returns the counts of its handshakes by kind.
fn counting_server(name: &str) -> (SocketAddr, Pem, Arc<Handshakes>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let pem = Pem::new(&made.cert.pem());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate and its key");
    let config = Arc::new(config);
    let handshakes = Arc::<Handshakes>::default();
    let counted = Arc::clone(&handshakes);
    let address = serve(move |_, mut socket: TcpStream| {
        let mut tls = ServerConnection::new(Arc::clone(&config)).expect("a server");
        // A failed handshake is not counted, because the client has refused the certificate.
        while tls.is_handshaking() {
            if tls.complete_io(&mut socket).is_err() {
                return;
            }
        }
        let kind = match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => &counted.resumed,
            _ => &counted.full,
        };
        kind.fetch_add(1, Relaxed);
        if let Some(websocket) = WebSocket::accept(StreamOwned::new(tls, socket)) {
            websocket.echo();
        }
    });
    (address, pem, handshakes)
}

/// A file that is deleted when the value is dropped.
struct Pem(PathBuf);

impl Pem {
    fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let name = format!("veche-load-{}-{number}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("written");
        Self(path)
    }
}

impl Drop for Pem {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(address: SocketAddr, tls: TlsPlan, size: usize) -> Report {
    let clients = Endpoint {
        tls,
        ..endpoint(&format!("wss://{address}/"), 3)
    };
    let load = LoadPlan::Echo(EchoPlan {
        payload: PayloadPlan {
            binary: true,
            content: PayloadContent::Size(size),
        },
        inflight: 2,
        ..EchoPlan::default()
    });
    report(plan(vec![clients], load, 400))
}

#[test]
fn a_certificate_that_is_trusted_and_any_when_asked() {
    let (address, pem) = server("127.0.0.1");
    let by_file = || TlsPlan {
        ca: Some(pem.0.clone()),
        ..TlsPlan::default()
    };
    let any = || TlsPlan {
        insecure: true,
        ..TlsPlan::default()
    };
    // Message sizes below and above the size of a TLS record, and above the size of the TLS buffer.
    for size in [20, 20_000, 300_000] {
        for tls in [by_file(), any()] {
            let report = run(address, tls, size);
            assert_clean(&report);
            let messages = &report.messages;
            assert!(messages.received >= 6, "{messages:?}");
            assert_eq!(messages.bytes_received, messages.received * size as u64);
        }
    }
}

#[test]
fn a_certificate_that_does_not_verify_is_refused() {
    let (address, _pem) = server("127.0.0.1");
    let (other, others) = server("elsewhere.example");
    let theirs = TlsPlan {
        ca: Some(others.0.clone()),
        ..TlsPlan::default()
    };
    // The client refuses the server if its certificate is untrusted, if only that of another server is
    // trusted, or if its certificate is trusted but has another name.
    for (address, tls) in [
        (address, TlsPlan::default()),
        (address, theirs.clone()),
        (other, theirs),
    ] {
        let report = run(address, tls, 20);
        let connections = &report.connections;
        assert_eq!(
            (connections.opened, connections.failed),
            (0, 3),
            "{connections:?}"
        );
        assert_eq!(
            (report.errors.tls, report.errors.count()),
            (3, 3),
            "{:?}",
            report.errors
        );
        let words = &report.errors.examples["tls"];
        assert!(words.contains("certificate"), "{words}");
    }
}

#[test]
fn sessions_are_resumed_unless_full_handshakes_are_asked_for() {
    for full_handshakes in [false, true] {
        let (address, _pem, handshakes) = counting_server("127.0.0.1");
        let clients = Endpoint {
            tls: TlsPlan {
                insecure: true,
                full_handshakes,
                ..TlsPlan::default()
            },
            ..endpoint(&format!("wss://{address}/"), 2)
        };
        let load = LoadPlan::Echo(EchoPlan {
            inflight: 1,
            churn: Some(40.0),
            ..EchoPlan::default()
        });
        let report = report(plan(vec![clients], load, 800));
        assert_clean(&report);
        let resumed = handshakes.resumed.load(Relaxed);
        let full = handshakes.full.load(Relaxed);
        match full_handshakes {
            true => assert_eq!((resumed, full > 10), (0, true), "{handshakes:?}"),
            false => assert!(resumed > 10 && full < resumed, "{handshakes:?}"),
        }
    }
}

#[test]
fn a_server_without_tls_is_no_tls_server() {
    let greeter = serve(|_, mut socket| {
        let _ = std::io::Write::write_all(&mut socket, b"220 welcome\r\n");
        let _ = std::io::Read::read(&mut socket, &mut [0; 1024]);
    });
    let report = run(greeter, TlsPlan::default(), 20);
    assert_eq!(
        (report.errors.tls, report.errors.count()),
        (3, 3),
        "{:?}",
        report.errors
    );
}
