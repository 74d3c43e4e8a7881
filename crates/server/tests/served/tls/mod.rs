//! TLS on the server's listeners, with real clients and certificates.

mod acme;
mod behind_proxy;
mod certificates;
mod client;
mod clients;
mod faults;
mod files;
mod openssl;
mod pebble;
mod pressure;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use serde_json::json;

use crate::support::metrics::Metrics;
use crate::support::{Options, Server, Setup, USUAL, call, on_all};
use certificates::Authority;
use client::{Client, Versions, trust};

const BOTH: Versions = &[&TLS13, &TLS12];
const ONLY_1_2: Versions = &[&TLS12];
const ONLY_1_3: Versions = &[&TLS13];

/// A server whose public listener has a certificate for `localhost`.
struct TlsFixture {
    server: Server,
    authority: Authority,
    trust: Arc<ClientConfig>,
}

impl TlsFixture {
    fn start(setup: Setup, listen: &str, options: &Options<'_>) -> Self {
        let authority = Authority::new("authority");
        let listen =
            format!("tls = {{ certificate = \"tls/own.pem\", key = \"tls/own.key\" }}\n{listen}");
        let server = Server::prepared(
            setup,
            &Options {
                listen: &listen,
                ..*options
            },
            |folder| authority.server(&["localhost"], &folder.join("tls"), "own"),
        );
        let trust = trust(&authority, BOTH, None);
        Self {
            server,
            authority,
            trust,
        }
    }

    fn open(&self) -> Client {
        Client::open(self.server.public, "localhost", &self.trust).expect("it opens")
    }

    /// Returns a metric summed over all workers.
    fn count(&self, name: &str, label: &str) -> u64 {
        Metrics::scrape(self.server.internal).sum(name, &[label]) as u64
    }
}

/// An additional listener for lines of a back end.
const LINES: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"push\"\nname = \"lines\"\n\
                     tls = { certificate = \"tls/own.pem\", key = \"tls/own.key\" }\n";

#[test]
fn every_protocol_is_served_over_tls() {
    on_all(|setup| {
        let fixture = TlsFixture::start(
            setup,
            "",
            &Options {
                routes: LINES,
                ..Options::default()
            },
        );
        let answer = fixture
            .open()
            .last_request("/index.html")
            .expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("<p>hello</p>"), "{answer}");

        let mut echo = fixture.open();
        assert_eq!(echo.stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        echo.upgrade("/echo").expect("it opens");
        for length in [0, 1, 1000, 16_384, 16_385, 60_000] {
            let data: Vec<u8> = (0..length).map(|i| i as u8).collect();
            echo.echoes(&data);
        }
        let mut user = fixture.open();
        user.upgrade("/ws?user=ada&channel=news").expect("it opens");
        call(
            fixture.server.internal,
            "publish",
            &json!({"channel": "news", "data": "over the wire"}),
        );
        assert_eq!(user.hear().expect("a publication"), b"over the wire");

        let mut back = Client::open(address_of(&fixture.server, 3), "localhost", &fixture.trust);
        let back = &mut back.as_mut().expect("it opens").stream;
        let line = json!({"user": "ada", "data": "by a line", "ack": true});
        back.write_all(format!("{line}\n").as_bytes())
            .expect("the server reads");
        let mut answer = String::new();
        BufReader::new(back)
            .read_line(&mut answer)
            .expect("an answer");
        assert!(answer.contains(":1"), "{answer}");
        assert_eq!(user.hear().expect("a publication"), b"by a line");
        user.leave();
        echo.leave();
        fixture.server.await_connections(1);
        assert_eq!(fixture.count("veche_tls_handshake_failures_total", ""), 0);
    });
}

/// Returns the address of a listener by its index in the configuration.
fn address_of(server: &Server, place: usize) -> SocketAddr {
    let status = server.status().expect("a status");
    let address = status["listeners"][place]["address"].as_str();
    address
        .and_then(|address| address.parse().ok())
        .expect("an address")
}

#[test]
fn a_client_gets_the_certificate_for_the_name_that_it_asks_for() {
    let authority = Authority::new("names");
    let listen = "tls = [\n{ certificate = \"a.pem\", key = \"a.key\" },\n\
                  { certificate = \"b.pem\", key = \"b.key\" },\n\
                  { certificate = \"c.pem\", key = \"c.key\" },\n]";
    let server = Server::prepared(
        USUAL,
        &Options {
            listen,
            ..Options::default()
        },
        |folder| {
            authority.server(&["a.example", "127.0.0.1"], folder, "a");
            authority.server(&["*.site.example", "b.example"], folder, "b");
            authority.server(&["deep.c.example", "*.c.example"], folder, "c");
        },
    );
    let trust = trust(&authority, BOTH, None);
    let shown = |name: &str| {
        let client = Client::open(server.public, name, &trust);
        client.map(|client| client.shown())
    };
    let der = |name: &str| {
        use rustls::pki_types::pem::PemObject as _;
        let file = server.folder.join(name);
        let read = rustls::pki_types::CertificateDer::from_pem_file(file);
        read.expect("a certificate").to_vec()
    };
    for (name, file) in [
        ("a.example", "a.pem"),
        ("A.Example", "a.pem"),
        ("b.example", "b.pem"),
        ("any.site.example", "b.pem"),
        ("deep.c.example", "c.pem"),
        ("any.c.example", "c.pem"),
        // A client sends no server name for an IP address, so the first certificate is used.
        ("127.0.0.1", "a.pem"),
    ] {
        assert!(
            shown(name).expect(name) == der(file),
            "{name} got another's"
        );
    }
    // For an unknown name, the server presents the first certificate, which the client rejects.
    let error = shown("elsewhere.test").expect_err("not for it");
    assert!(error.to_string().contains("not valid for name"), "{error}");
    let metrics = Metrics::scrape(server.internal);
    let expiry = metrics.sum("veche_tls_certificate_expiry_seconds", &["certificate"]);
    assert!(expiry > 3.0 * 1.7e9, "{expiry}");
}

#[test]
fn versions_and_session_resumption() {
    on_all(|setup| {
        let fixture = TlsFixture::start(setup, "", &Options::default());
        for (versions, label) in [(ONLY_1_2, "version=\"1.2\""), (ONLY_1_3, "version=\"1.3\"")] {
            let trust = trust(&fixture.authority, versions, None);
            let before = fixture.count("veche_tls_handshakes_total", "outcome=\"resumed\"");
            // The connections are separate, so they may reach any of the workers.
            for time in 0..6 {
                let mut client =
                    Client::open(fixture.server.public, "localhost", &trust).expect("it opens");
                assert_eq!(client.is_resumed(), time > 0, "{label}, time {time}");
                client.last_request("/index.html").expect("an answer");
            }
            let after = fixture.count("veche_tls_handshakes_total", "outcome=\"resumed\"");
            assert_eq!(after - before, 5, "{label}");
            assert_eq!(fixture.count("veche_tls_versions_total", label), 6);
        }
        assert_eq!(
            fixture.count("veche_tls_handshakes_total", "outcome=\"full\""),
            2
        );
    });
}
