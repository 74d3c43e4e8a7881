//! The tools of attackers: sockets, handshakes and frames without any rules.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use fastrand::Rng;
use socket2::{Domain, Protocol, SockRef, Type};

use crate::support::SOON;

/// The headers of a handshake, without the empty line.
pub(crate) const UPGRADE: &str = "Host: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// First bytes of frames: an opcode, with or without the bit FIN.
pub(crate) const TEXT: u8 = 0x81;
pub(crate) const TEXT_BEGINS: u8 = 0x01;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CONTINUES: u8 = 0x00;
pub(crate) const ENDS: u8 = 0x80;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
/// The bit RSV1 of a compressed message (RFC 7692).
pub(crate) const DEFLATED: u8 = 0x40;

/// Connects from one of this machine's sixteen million loopback addresses, so that no address runs out of ports. The
/// connection ends with a reset unless [`end_well`] is called.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    connect_with(to, |_| {})
}

/// Connects with a socket that `prepare` has configured.
pub(crate) fn connect_with(to: SocketAddr, prepare: impl FnOnce(&socket2::Socket)) -> TcpStream {
    let mut rng = Rng::new();
    let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
    let socket = socket.expect("a socket");
    prepare(&socket);
    let from = Ipv4Addr::new(127, rng.u8(1..), rng.u8(..), rng.u8(1..255));
    socket
        .bind(&SocketAddr::from((from, 0)).into())
        .expect("an address of loopback");
    socket.connect(&to.into()).expect("the listener takes it");
    socket.set_tcp_nodelay(true).expect("a socket");
    socket.set_read_timeout(Some(SOON)).expect("a socket");
    socket.set_write_timeout(Some(SOON)).expect("a socket");
    socket.set_linger(Some(Duration::ZERO)).expect("a socket");
    socket.into()
}

/// Limits the kernel's receive buffer, and the packet size to that of the internet: with loopback's
/// packets of 64 KiB the server's kernel would hold megabytes for each connection.
pub(crate) fn narrow(socket: &socket2::Socket) {
    socket.set_recv_buffer_size(4096).expect("a socket");
    socket.set_tcp_mss(1460).expect("a socket");
}

/// Makes the connection end with FIN.
pub(crate) fn end_well(socket: &TcpStream) {
    SockRef::from(socket).set_linger(None).expect("a socket");
}

/// Returns a WebSocket handshake; `headers` are complete lines.
pub(crate) fn handshake(target: &str, headers: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\n{UPGRADE}{headers}\r\n").into_bytes()
}

#[track_caller]
pub(crate) fn open(to: SocketAddr, target: &str, headers: &str) -> TcpStream {
    upgrade(connect(to), target, headers)
}

#[track_caller]
pub(crate) fn upgrade(mut socket: TcpStream, target: &str, headers: &str) -> TcpStream {
    socket
        .write_all(&handshake(target, headers))
        .expect("the server reads");
    assert_eq!(status(&mut socket), Some(101), "{target}");
    socket
}

/// Returns the status of the next response, reading only its head; `None` if there is none.
pub(crate) fn status(socket: &mut TcpStream) -> Option<u16> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    let status = head.get(9..12)?;
    std::str::from_utf8(status).ok()?.parse().ok()
}

/// Returns a client's frame with a given first byte, masked with zeros.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = announced(first, payload.len() as u64);
    frame.extend_from_slice(payload);
    frame
}

/// Returns the header of a client's frame whose payload has `bytes` bytes, with a mask of zeros.
pub(crate) fn announced(first: u8, bytes: u64) -> Vec<u8> {
    let mut head = vec![first];
    match bytes {
        0..126 => head.push(0x80 | bytes as u8),
        126..0x1_0000 => {
            head.push(0x80 | 126);
            head.extend_from_slice(&(bytes as u16).to_be_bytes());
        }
        _ => {
            head.push(0x80 | 127);
            head.extend_from_slice(&bytes.to_be_bytes());
        }
    }
    head.extend_from_slice(&[0; 4]);
    head
}

/// Returns the first byte and the payload of the server's next frame; `None` when there are no more.
pub(crate) fn hear(socket: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    socket.read_exact(&mut head).ok()?;
    let length = match head[1] {
        126 => {
            let mut bytes = [0; 2];
            socket.read_exact(&mut bytes).ok()?;
            u16::from_be_bytes(bytes).into()
        }
        127 => {
            let mut bytes = [0; 8];
            socket.read_exact(&mut bytes).ok()?;
            u64::from_be_bytes(bytes) as usize
        }
        short => short.into(),
    };
    let mut payload = vec![0; length];
    socket.read_exact(&mut payload).ok()?;
    Some((head[0], payload))
}

/// Returns the code with which the server closes, skipping other frames; `None` if the reset after the Close frame
/// arrived before the frame was read.
pub(crate) fn closed(socket: &mut TcpStream) -> Option<u16> {
    loop {
        let (first, payload) = hear(socket)?;
        if first == CLOSE {
            let code = payload.get(..2).expect("a server says why");
            return Some(u16::from_be_bytes([code[0], code[1]]));
        }
    }
}
