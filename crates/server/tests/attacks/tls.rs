//! TLS attacks: handshakes that cost the server more than the client, handshakes that never end,
//! and attacks after a handshake.
//!
//! The well-behaved clients use a listener without TLS on the same worker.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use socket2::SockRef;

use crate::attack::{Attack, Target};
use crate::floods::{PONG, back_ends, flood_of};
use crate::raw::{BINARY, connect, frame};
use crate::support::Options;
use certificates::Authority;
use client::{Client, trust};

#[path = "../served/tls/certificates.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod certificates;
#[path = "../served/tls/client.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod client;

const BOTH: client::Versions = &[&TLS13, &TLS12];

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\nname = \"tls\"\nhosts = [\"*\"]\n\
                      tls = { certificate = \"own.pem\", key = \"own.key\" }\n";

/// A client configuration without session resumption: every handshake is full.
struct Whole {
    authority: Authority,
    trust: Arc<ClientConfig>,
}

impl Whole {
    fn new() -> Self {
        let authority = Authority::new("attacks");
        let trust = trust(&authority, BOTH, None);
        let mut config = ClientConfig::clone(&trust);
        config.resumption = Resumption::disabled();
        Self {
            authority,
            trust: Arc::new(config),
        }
    }

    fn open(&self, target: &Target<'_>) -> Client {
        let client = Client::open(tls_address(target), "localhost", &self.trust).expect("it opens");
        let linger = SockRef::from(&client.stream.sock).set_linger(Some(Duration::ZERO));
        linger.expect("a socket");
        client
    }

    /// Returns the server's certificate and key, with the names used in [`LISTEN`].
    fn files(&self) -> [(&'static str, String); 2] {
        let file = self.authority.file();
        let folder = file.parent().expect("it lies in a folder");
        self.authority.server(&["localhost"], folder, "own");
        ["own.pem", "own.key"].map(|name| {
            let text = fs::read_to_string(folder.join(name));
            (name, text.expect("it is there"))
        })
    }

    /// Runs an attack on a server whose certificate the test CA has issued.
    fn run(&self, memory_mib_max: u64, attempt: impl Fn(&Target<'_>, &mut fastrand::Rng) + Sync) {
        let attack = Attack {
            memory_mib_max,
            ..Attack::default()
        };
        self.run_as(attack, attempt);
    }

    /// Runs an attack with these parameters on a server with a certificate issued by the test CA.
    fn run_as(&self, attack: Attack<'_>, attempt: impl Fn(&Target<'_>, &mut fastrand::Rng) + Sync) {
        let files = self.files();
        let files: Vec<_> = (files.iter())
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        let attack = Attack {
            options: Options {
                routes: LISTEN,
                files: &files,
                ..attack.options
            },
            ..attack
        };
        attack.run(attempt);
    }
}

/// Returns the address of the TLS listener, the one configured last.
fn tls_address(target: &Target<'_>) -> SocketAddr {
    let status = target.server.status().expect("a status");
    let listeners = status["listeners"].as_array().expect("a list");
    let address = listeners.last().expect("listeners")["address"].as_str();
    address
        .and_then(|address| address.parse().ok())
        .expect("an address")
}

/// Returns whether the server closes the connection before this client's timeout.
fn has_ended(socket: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => !matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        ),
    }
}

/// Returns a ClientHello as bytes.
fn hello(trust: &Arc<ClientConfig>) -> Vec<u8> {
    let name = "localhost".try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::clone(trust), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("into memory");
    bytes
}

#[test]
fn whole_handshakes_without_end() {
    let whole = Whole::new();
    whole.run(16, |target, _| {
        drop(whole.open(target));
        target.landed();
    });
}

/// Each attacker sends 50 ClientHellos at once. The server signs for each; no handshake continues.
#[test]
fn crowds_that_only_say_hello() {
    let whole = Whole::new();
    let hello = hello(&whole.trust);
    whole.run(24, |target, _| {
        let address = tls_address(target);
        let mut crowd: Vec<_> = (0..50).map(|_| connect(address)).collect();
        for socket in &mut crowd {
            let _ = socket.write_all(&hello);
        }
        for socket in &mut crowd {
            if socket.read(&mut [0; 1]).is_ok_and(|count| count > 0) {
                target.landed();
            }
        }
    });
}

#[test]
fn handshakes_that_stall() {
    let whole = Whole::new();
    let hello = hello(&whole.trust);
    whole.run(24, |target, rng| {
        let address = tls_address(target);
        let mut stalled: Vec<_> = (0..80).map(|_| connect(address)).collect();
        for socket in &mut stalled {
            let _ = socket.write_all(&hello[..rng.usize(..hello.len())]);
        }
        for mut socket in stalled {
            assert!(has_ended(&mut socket), "it was left open");
            target.landed();
        }
    });
}

/// A ClientHello of sixteen megabytes, in records of the maximum length.
#[test]
fn a_hello_without_end() {
    let whole = Whole::new();
    let begin = [
        &[22, 3, 1, 0x40, 0][..],
        &[1, 0xff, 0xff, 0xff],
        &[0; 16_380],
    ]
    .concat();
    let more = [&[22, 3, 1, 0x40, 0][..], &[0; 16_384]].concat();
    whole.run(16, |target, _| {
        let mut socket = connect(tls_address(target));
        let _ = socket.write_all(&begin);
        for _ in 0..1000 {
            if socket.write_all(&more).is_err() {
                break;
            }
        }
        assert!(has_ended(&mut socket), "it was left open");
        target.landed();
    });
}

#[test]
fn garbage_after_the_handshake() {
    let whole = Whole::new();
    whole.run(16, |target, rng| {
        let mut client = whole.open(target);
        client.upgrade("/echo").expect("it opens");
        let garbage: Vec<u8> = (0..rng.usize(1..20_000)).map(|_| rng.u8(..)).collect();
        // In half of the attacks the garbage is preceded by the header of an application data
        // record.
        let begin: &[u8] = if rng.bool() {
            &[23, 3, 3, 0x01, 0x00]
        } else {
            &[]
        };
        let socket = &mut client.stream.sock;
        let _ = socket.write_all(begin);
        let _ = socket.write_all(&garbage);
        socket.shutdown(std::net::Shutdown::Write).ok();
        assert!(has_ended(socket), "it was left open");
        target.landed();
    });
}

/// Each byte is sent in a separate TLS record, which costs the server 22 more bytes and a
/// decryption.
#[test]
fn records_of_a_byte() {
    let whole = Whole::new();
    let message = frame(BINARY, &[b'x'; 2000]);
    whole.run(16, |target, _| {
        let mut client = whole.open(target);
        client.upgrade("/echo").expect("it opens");
        while target.lasts() {
            for byte in message.chunks(1) {
                client.stream.conn.writer().write_all(byte).expect("kept");
                let mut record = Vec::new();
                while client.stream.conn.wants_write() {
                    client
                        .stream
                        .conn
                        .write_tls(&mut record)
                        .expect("into memory");
                }
                client.stream.sock.write_all(&record).expect("it reads");
            }
            assert_eq!(client.hear().expect("an echo").len(), 2000);
            target.landed();
        }
    });
}

/// Clients send a key update for every record (RFC 8446, section 4.6.3). The server either
/// disconnects such clients or serves them.
#[test]
fn keys_that_change_without_end() {
    let whole = Whole::new();
    whole.run(16, |target, _| {
        let mut client = whole.open(target);
        client.upgrade("/echo").expect("it opens");
        target.landed();
        while target.lasts() {
            let mut records = Vec::new();
            for _ in 0..100 {
                client.stream.conn.refresh_traffic_keys().expect("TLS 1.3");
                client
                    .stream
                    .conn
                    .write_tls(&mut records)
                    .expect("into memory");
            }
            if client.stream.sock.write_all(&records).is_err() {
                break;
            }
        }
    });
}

/// Twenty clients send TLS records endlessly, as fast as they can.
#[test]
fn records_as_fast_as_they_go() {
    let whole = Whole::new();
    let pongs = flood_of(&frame(PONG, b""));
    for io in back_ends() {
        let attack = Attack {
            io,
            attackers: 20,
            has_newcomers: true,
            ..Attack::default()
        };
        whole.run_as(attack, |target, _| {
            let mut client = whole.open(target);
            client.upgrade("/echo").expect("it opens");
            while target.lasts() {
                client.stream.write_all(&pongs).expect("it is served");
                target.landed();
            }
        });
    }
}
