//! Pebble, an ACME test authority, and the DNS server that it uses.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use serde_json::json;

use super::BOTH;
use super::certificates::Authority;
use super::client::{Client, trust};
use crate::support::{skip, until};

/// A Pebble process, which may not be running, and its addresses.
pub(super) struct Pebble {
    folder: PathBuf,
    /// The authority of Pebble's own server certificate.
    authority: Authority,
    address: SocketAddr,
    management: SocketAddr,
    child: Option<Child>,
}

/// A name for which Pebble refuses to issue certificates.
pub(super) const BLOCKED: &str = "blocked.veche.test";

impl Pebble {
    /// Returns `None`, with a message, if Pebble is not installed.
    pub(super) fn new(test: &str) -> Option<Self> {
        if Command::new("pebble").arg("-help").output().is_err() {
            skip("no Pebble on this machine (Debian package pebble)");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("veche-{test}-{}", std::process::id()));
        let authority = Authority::new(test);
        authority.server(&["127.0.0.1"], &folder, "own");
        // These ports are free now; Pebble binds them soon.
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [address, management] = listeners.map(|one| one.local_addr().expect("bound"));
        Some(Self {
            folder,
            authority,
            address,
            management,
            child: None,
        })
    }

    /// Returns the file of the CA certificate with which clients verify Pebble's own server.
    pub(super) fn ca(&self) -> PathBuf {
        self.authority.file()
    }

    /// Returns configuration lines with which the server orders from Pebble.
    pub(super) fn config(&self) -> String {
        format!(
            "[acme]\ndirectory = \"https://{}/dir\"\nca = {:?}\ncontact = [\"ops@veche.test\"]\n",
            self.address,
            self.ca()
        )
    }

    /// Returns the cache folder of a server, beside its configuration.
    pub(super) fn cache(&self, folder: &Path) -> PathBuf {
        let name = format!("127.0.0.1-{}-dir", self.address.port());
        folder.join("acme").join(name)
    }

    /// Starts Pebble with the port on which it validates names.
    pub(super) fn start(&mut self, tls_port: u16) {
        let config = json!({"pebble": {
            "listenAddress": self.address,
            "managementListenAddress": self.management,
            "certificate": self.folder.join("own.pem"),
            "privateKey": self.folder.join("own.key"),
            "httpPort": 1,
            "tlsPort": tls_port,
            "domainBlocklist": [BLOCKED],
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
        }});
        let file = self.folder.join("pebble.json");
        fs::write(&file, config.to_string()).expect("written");
        let log = fs::File::create(self.folder.join("log")).expect("a log");
        let command = &mut Command::new("pebble");
        let child = command
            .arg("-config")
            .arg(file)
            .args(["-dnsserver", &names().to_string()])
            .env("PEBBLE_VA_NOSLEEP", "1")
            // Pebble rejects one of twenty nonces, as may happen with any authority.
            .env("PEBBLE_WFE_NONCEREJECT", "5")
            // Validations are not reused, so that each order has to be validated.
            .env("PEBBLE_AUTHZREUSE", "0")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("it starts"));
        until("Pebble", || {
            [self.address, self.management]
                .iter()
                .all(|address| TcpStream::connect(address).is_ok())
        });
    }

    pub(super) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns the root of issued certificates as a PEM file. Pebble creates another root at each start.
    pub(super) fn root(&self) -> PathBuf {
        let mut config = trust(&self.authority, BOTH, None);
        Arc::make_mut(&mut config).alpn_protocols.clear();
        let client = Client::open(self.management, "127.0.0.1", &config);
        let answer = client.expect("it opens").last_request("/roots/0");
        let answer = answer.expect("an answer");
        let pem = answer.find("-----BEGIN").map(|at| &answer[at..]);
        let file = self.folder.join("root.pem");
        fs::write(&file, pem.expect("a certificate")).expect("written");
        file
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(30);
            eprintln!("log of Pebble:\n{}", lines[from..].join("\n"));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts a DNS server that resolves every name to this machine until the tests end. Debian's Pebble 2.4 uses UDP, later
/// versions use TCP.
fn names() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let socket = UdpSocket::bind(address).expect("the same port");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || converse(stream));
        }
    });
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut query) {
            if let Some(answer) = answer(&query[..length]) {
                let _ = socket.send_to(&answer, client);
            }
        }
    });
    address
}

/// Answers the queries of a connection. Each message is preceded by its length (RFC 1035 section 4.2.2).
fn converse(mut stream: TcpStream) -> Option<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length).ok()?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query).ok()?;
        let answer = answer(&query)?;
        let length = u16::try_from(answer.len()).ok()?.to_be_bytes();
        stream.write_all(&[&length[..], &answer].concat()).ok()?;
    }
}

/// Answers A queries with 127.0.0.1 and others with nothing (RFC 1035 section 4.1).
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let name = query.get(12..)?.iter().position(|&byte| byte == 0)?;
    let question = query.get(12..12 + name + 5)?;
    let is_a = question[name + 1..name + 3] == [0, 1];
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(question);
    if is_a {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}
