//! TLS connections with records split anywhere, modified, truncated, or mixed with garbage.
//!
//! The input is a script of client actions. Each client has a correct TLS implementation, so that its messages reach
//! the server's core; the script manipulates the bytes in between. A client whose bytes were not modified has to
//! understand every byte from the server.

use veche_net::{ConnectionId, RemoteState, Simulated};
use veche_tls::{ClientTrust, TlsStream, TrustSource};

use super::FuzzInput;
use crate::stage::{FuzzStage, good};

const CONFIG: &str = r#"
[server]
workers = 1
[[listen]]
address = "127.0.0.1:0"
hosts = ["*"]
tls = { certificate = "own.pem", key = "own.key" }
[[listen]]
address = "127.0.0.1:0"
role = "push"
tls = { certificate = "own.pem", key = "own.key" }
[[route]]
path = "/echo"
handler = "echo"
compression = true
[[route]]
path = "/ws"
handler = "push"
identity = "query:user"
channels = ["news"]
[[route]]
path = "/*"
handler = "static"
root = "site"
[limits]
write_timeout = "2s"
"#;

const OPERATIONS_MAX: usize = 200;
const CLIENTS_MAX: usize = 20;

const UPGRADE: &str = "Host: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

/// The state of a client.
struct FuzzClient {
    id: ConnectionId,
    tls: Box<TlsStream>,
    /// Encrypted bytes on their way to the server.
    wire: Vec<u8>,
    /// True while the script has not modified the client's bytes.
    is_honest: bool,
    /// True once the server has answered without TLS, so that nothing further can be decrypted.
    is_lost: bool,
}

/// Runs one script; panics if a check fails.
pub fn tls_server(data: &[u8]) {
    let trust = ClientTrust::new(&TrustSource::Insecure).expect("nothing is read");
    let mut stage = FuzzStage::new(&good(CONFIG));
    let mut clients: Vec<FuzzClient> = Vec::new();
    let mut script = FuzzInput(data);
    for _ in 0..OPERATIONS_MAX {
        let (Some(operation), Some(argument)) = (script.byte(), script.byte()) else {
            break;
        };
        if clients.is_empty() || (operation % 16 == 0 && clients.len() < CLIENTS_MAX) {
            clients.push(FuzzClient {
                id: stage.dial(u32::from(argument % 4 == 3)),
                tls: trust.connect("localhost").expect("a name"),
                wire: Vec::new(),
                is_honest: true,
                is_lost: false,
            });
            continue;
        }
        let which = usize::from(argument) % clients.len();
        operate(operation, &mut script, &mut stage, &mut clients[which]);
        for client in &mut clients {
            client.hear(&mut stage);
        }
    }
    stage.settle();
    stage.advance(300_000);
    let ids: Vec<_> = clients.iter().map(|client| client.id).collect();
    stage.finish(&ids);
}

fn operate(
    operation: u8,
    script: &mut FuzzInput<'_>,
    stage: &mut FuzzStage<Simulated>,
    client: &mut FuzzClient,
) {
    match operation % 16 {
        // Sends plain bytes as TLS application data.
        0 | 1 => client.say(script.bytes()),
        2..=4 => client.say(&sensible(script.byte().unwrap_or(0))),
        // Transmits a part of the bytes, or all.
        5 => {
            let count = usize::from(script.byte().unwrap_or(0)).min(client.wire.len());
            let piece = client.wire.drain(..count).collect();
            stage.network().write(client.id, piece);
        }
        6 | 7 => {
            let wire = std::mem::take(&mut client.wire);
            stage.network().write(client.id, wire);
            stage.settle();
        }
        8 => client.alter_wire(|wire| {
            let place = usize::from(script.byte().unwrap_or(0));
            let count = wire.len().max(1);
            if let Some(byte) = wire.get_mut(place % count) {
                *byte ^= 1 << (operation >> 5);
            }
        }),
        9 => {
            let cut = usize::from(script.byte().unwrap_or(0));
            client.alter_wire(|wire| wire.truncate(cut));
        }
        10 => {
            let bytes = script.bytes();
            client.alter_wire(|wire| wire.extend_from_slice(bytes));
        }
        11 => stage.network().finish(client.id),
        12 => stage.network().reset(client.id),
        13 => stage.advance(u64::from(script.byte().unwrap_or(0)) * 100),
        14 => {
            let reads = operation & 16 == 0;
            stage.network().set_reading(client.id, reads);
        }
        _ => client.tls.close(&mut client.wire),
    }
    stage.settle();
}

/// Returns a fragment of a valid client message.
fn sensible(what: u8) -> Vec<u8> {
    let frame = |first: u8, payload: &[u8]| {
        let mut frame = vec![first, 0x80 | payload.len().min(125) as u8, 0, 0, 0, 0];
        frame.extend_from_slice(&payload[..payload.len().min(125)]);
        frame
    };
    match what % 12 {
        0 => format!("GET /echo HTTP/1.1\r\n{UPGRADE}").into(),
        1 => format!("GET /ws?user=ann&channel=news HTTP/1.1\r\n{UPGRADE}").into(),
        2 => b"GET /index.html HTTP/1.1\r\nHost: t\r\n\r\n".to_vec(),
        3 => b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n".to_vec(),
        4 => frame(0x81, b"hello"),
        5 => frame(0x82, &[0; 125]).repeat(usize::from(what)),
        6 => frame(0x89, b"ping"),
        7 => frame(0x88, &[3, 232]),
        8 => frame(0xc1, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]),
        9 => b"{\"user\":\"ann\",\"data\":\"pushed\",\"ack\":true}\n".to_vec(),
        10 => b"{\"channel\":\"news\",\"data\":1}\n".repeat(usize::from(what)),
        _ => vec![b'x'; 20_000],
    }
}

impl FuzzClient {
    fn say(&mut self, plain: &[u8]) {
        self.tls.send(plain, &mut self.wire);
    }

    fn alter_wire(&mut self, touch: impl FnOnce(&mut Vec<u8>)) {
        let before = self.wire.clone();
        touch(&mut self.wire);
        self.is_honest &= before == self.wire;
    }

    /// Decrypts the received bytes; a client whose own bytes were not modified must accept all of them.
    fn hear(&mut self, stage: &mut FuzzStage<Simulated>) {
        let (encrypted, state) = stage.read(self.id);
        if self.is_lost {
            return;
        }
        let mut plain = Vec::new();
        match self.tls.receive(&encrypted, &mut plain) {
            Ok(()) => {}
            // Only a client whose bytes were modified may fail: it may receive a timeout alert, or a plain response to
            // bytes that are not TLS.
            Err(error) => {
                self.is_lost = true;
                assert!(
                    !self.is_honest,
                    "a client that sent only valid TLS got the error {error}"
                );
            }
        }
        if state == RemoteState::Open {
            self.tls.send(&[], &mut self.wire);
        }
    }
}
