//! Sends handshakes and frames of clients to the worker, and reads the responses.

use veche_net::ConnectionId;
use veche_proto::websocket::{MessageKind, encode_message};

use veche::stage::WorkerRig;

/// The masking key of all clients; its value does not matter.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A text message as clients send it: one masked frame.
pub(crate) fn frame(text: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_message(&mut frame, MessageKind::Text, text, Some(MASK));
    frame
}

/// Opens a WebSocket on the first listener.
pub(crate) fn open(rig: &mut WorkerRig, path: &str) -> ConnectionId {
    let id = rig.dial(0);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let answer = ask(rig, id, request.into_bytes());
    assert!(
        answer.starts_with(b"HTTP/1.1 101 "),
        "{path} opens: {}",
        String::from_utf8_lossy(&answer)
    );
    id
}

/// Sends bytes and returns the response.
pub(crate) fn ask(rig: &mut WorkerRig, id: ConnectionId, bytes: Vec<u8>) -> Vec<u8> {
    rig.arrive(id, bytes);
    rig.settle();
    rig.take_sent(id)
}
