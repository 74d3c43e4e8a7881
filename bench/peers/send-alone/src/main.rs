//! The reference for the push and fan-out scenarios: a server that reads lines and makes one `send`
//! for each delivery. It has no users, channels or JSON, and it neither queues nor coalesces.
//!
//! `veche-bench-send-alone ADDRESS PUBLISH`: receivers connect to ADDRESS with a request target
//! that ends in their number; publishers write lines to PUBLISH. `NUMBER MESSAGE` goes to one
//! receiver, `* MESSAGE` to all. When a publisher connects, the server serves the receivers
//! connected by then, and drops them when the publisher disconnects.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::SendFlags;
use sha1::{Digest, Sha1};

const RECEIVERS: u64 = 0;
const PUBLISHERS: u64 = 1;
const PUBLISHER: u64 = 2;

const EVENTS_MAX: usize = 64;
const READ_BYTES: usize = 64 << 10;

struct Publisher {
    socket: TcpStream,
    /// The beginning of a line that is not complete yet.
    rest: Vec<u8>,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [receivers_at, publishers_at] = arguments.as_slice() else {
        bail!("usage: veche-bench-send-alone ADDRESS PUBLISH");
    };
    serve(receivers_at.parse()?, publishers_at.parse()?)
}

fn serve(receivers_at: SocketAddr, publishers_at: SocketAddr) -> anyhow::Result<()> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    let (receiving, publishing) = (
        TcpListener::bind(receivers_at)?,
        TcpListener::bind(publishers_at)?,
    );
    receiving.set_nonblocking(true)?;
    epoll::add(
        &poll,
        &receiving,
        EventData::new_u64(RECEIVERS),
        EventFlags::IN,
    )?;
    epoll::add(
        &poll,
        &publishing,
        EventData::new_u64(PUBLISHERS),
        EventFlags::IN,
    )?;
    let mut receivers: Vec<Option<TcpStream>> = Vec::new();
    let mut publisher: Option<Publisher> = None;
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut frame = Vec::new();
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                RECEIVERS => while accept(&receiving, &mut receivers)? {},
                PUBLISHERS => {
                    let (socket, _) = publishing.accept()?;
                    epoll::add(
                        &poll,
                        &socket,
                        EventData::new_u64(PUBLISHER),
                        EventFlags::IN,
                    )?;
                    publisher = Some(Publisher {
                        socket,
                        rest: Vec::new(),
                    });
                }
                _ => {
                    let from = publisher.as_mut().context("a publisher")?;
                    if !publish(from, &receivers, &mut frame)? {
                        epoll::delete(&poll, &from.socket)?;
                        publisher = None;
                        receivers.clear();
                    }
                }
            }
        }
    }
}

/// Delivers the data received from a publisher. Returns whether the publisher is still connected.
fn publish(
    from: &mut Publisher,
    receivers: &[Option<TcpStream>],
    frame: &mut Vec<u8>,
) -> anyhow::Result<bool> {
    let begun = from.rest.len();
    from.rest.resize(begun + READ_BYTES, 0);
    let count = match from.socket.read(&mut from.rest[begun..]) {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
        Err(error) => return Err(error.into()),
    };
    from.rest.truncate(begun + count);
    if count == 0 {
        return Ok(false);
    }
    let mut sent = 0;
    while let Some(length) = from.rest[sent..].iter().position(|&byte| byte == b'\n') {
        let line = &from.rest[sent..sent + length];
        sent += length + 1;
        let space = line
            .iter()
            .position(|&byte| byte == b' ')
            .context("a line without a receiver")?;
        let (to, message) = (&line[..space], &line[space + 1..]);
        frame.clear();
        write_frame(frame, message);
        match to {
            b"*" => receivers
                .iter()
                .flatten()
                .try_for_each(|receiver| send(receiver, frame))?,
            number => {
                let number: usize = str::from_utf8(number)?.parse()?;
                let receiver = receivers.get(number).and_then(Option::as_ref);
                send(
                    receiver.with_context(|| format!("no receiver {number}"))?,
                    frame,
                )?;
            }
        }
    }
    from.rest.drain(..sent);
    Ok(true)
}

fn send(receiver: &TcpStream, frame: &[u8]) -> anyhow::Result<()> {
    let sent = rustix::net::send(receiver, frame, SendFlags::NOSIGNAL)?;
    ensure!(sent == frame.len(), "a receiver does not keep up");
    Ok(())
}

/// Writes a text message in one frame, as servers send it (RFC 6455, section 5.2).
fn write_frame(out: &mut Vec<u8>, message: &[u8]) {
    out.push(0x81);
    match message.len() {
        length @ ..126 => out.push(length as u8),
        length @ ..0x1_0000 => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(message);
}

/// Accepts one waiting receiver. Returns whether there may be more.
fn accept(listener: &TcpListener, receivers: &mut Vec<Option<TcpStream>>) -> anyhow::Result<bool> {
    let mut socket = match listener.accept() {
        Ok((socket, _)) => socket,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut head = Vec::new();
    let mut part = [0; 4096];
    while !head.ends_with(b"\r\n\r\n") {
        let count = socket.read(&mut part)?;
        if count == 0 {
            // A probe that only checks whether this server runs, and sends no request.
            return Ok(true);
        }
        head.extend_from_slice(&part[..count]);
    }
    let head = String::from_utf8(head)?;
    let target = head
        .split(' ')
        .nth(1)
        .context("a request without a target")?;
    let digits = target.len() - target.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let number: usize = target[target.len() - digits..]
        .parse()
        .context("a receiver without a number")?;
    let key = head.lines().filter_map(|line| line.split_once(':'));
    let key = key
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"));
    let key = key.context("a receiver without a key")?.1.trim();
    let accept = BASE64_STANDARD.encode(Sha1::digest(format!(
        "{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    )));
    write!(
        socket,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )?;
    socket.set_nonblocking(true)?;
    if receivers.len() <= number {
        receivers.resize_with(number + 1, || None);
    }
    receivers[number] = Some(socket);
    Ok(true)
}
