//! TLS, end to end: trusted when it is to be trusted, refused when it is not.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use veche_load::loads::LoadPlan;
use veche_load::loads::echo::EchoPlan;
use veche_load::payload::{Content, PayloadPlan};
use veche_load::plan::{Endpoint, TlsPlan};
use veche_load::report::Report;

use crate::support::{WebSocket, assert_clean, endpoint, plan, report, serve};

/// An echo server whose certificate is for `name`, and the file with that certificate.
fn server(name: &str) -> (SocketAddr, Pem) {
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
    let address = serve(move |_, socket: TcpStream| {
        let tls = ServerConnection::new(Arc::clone(&config)).expect("a server");
        if let Some(websocket) = WebSocket::accept(StreamOwned::new(tls, socket)) {
            websocket.echo();
        }
    });
    (address, pem)
}

/// A file that goes with the value.
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
            content: Content::Size(size),
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
        insecure: false,
        ca: Some(pem.0.clone()),
    };
    let any = || TlsPlan {
        insecure: true,
        ca: None,
    };
    // Below and above what one record holds, and what TLS puts up with at a time.
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
        insecure: false,
        ca: Some(others.0.clone()),
    };
    // Nobody's, another's, and the right one for another name.
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
