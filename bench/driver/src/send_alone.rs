//! The yardstick of the push scenarios: what a push would cost if finding the user, reading the line and making the
//! frame cost nothing. Receivers connect like users (`?user=` in the target, a minimal 101); each byte on the
//! control connection makes one `send` of a frame that was prepared before, to the receivers in turn by name, or, of
//! `fanout`, one for each of them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::fanout;
use crate::frame::{self, TEXT};
use crate::handshake;
use crate::poll::Poll;
use crate::push::{VARIANTS, message};

const ACCEPT: usize = usize::MAX;
const ACCEPT_CONTROL: usize = usize::MAX - 1;
const CONTROL: usize = usize::MAX - 2;

struct Receiver {
    stream: TcpStream,
    user: String,
    /// One frame per variant, each ready to go.
    frames: Vec<Vec<u8>>,
}

/// Serves one control connection after another, until killed.
pub fn run(address: SocketAddr, control: SocketAddr, size: usize, all: bool) -> anyhow::Result<()> {
    let (users, controls) = (TcpListener::bind(address)?, TcpListener::bind(control)?);
    users.set_nonblocking(true)?;
    let mut poll = Poll::new()?;
    poll.readable(&users, ACCEPT)?;
    poll.readable(&controls, ACCEPT_CONTROL)?;
    let mut receivers: Vec<Receiver> = Vec::new();
    let mut writer: Option<TcpStream> = None;
    let mut buffer = vec![0; 64 * 1024];
    let mut next = 0;
    println!("listening");
    loop {
        let ready: Vec<usize> = poll
            .wait(Duration::from_secs(1))?
            .map(|(name, _)| name)
            .collect();
        for name in ready {
            match name {
                ACCEPT => {
                    while let Some(receiver) = accept(&users, size, all)? {
                        receivers.push(receiver);
                    }
                }
                ACCEPT_CONTROL => {
                    let (stream, _) = controls.accept()?;
                    if stream.peek(&mut [0]).is_ok_and(|count| count == 0) {
                        continue;
                    }
                    poll.readable(&stream, CONTROL)?;
                    receivers.sort_by(|left, right| left.user.cmp(&right.user));
                    next = 0;
                    writer = Some(stream);
                }
                _ => {
                    let stream = writer.as_mut().context("a control connection")?;
                    let count = stream.read(&mut buffer)?;
                    if count == 0 {
                        poll.remove(&*stream)?;
                        writer = None;
                        receivers.clear();
                        continue;
                    }
                    let sends = if all { count * receivers.len() } else { count };
                    for _ in 0..sends {
                        send_next(&mut receivers, next)?;
                        next += 1;
                    }
                }
            }
        }
    }
}

fn send_next(receivers: &mut [Receiver], number: usize) -> anyhow::Result<()> {
    let count = receivers.len();
    ensure!(count > 0, "a tick and no receiver");
    let receiver = &mut receivers[number % count];
    let bytes = &receiver.frames[number / count % VARIANTS];
    let sent = rustix::net::send(&receiver.stream, bytes, rustix::net::SendFlags::NOSIGNAL)?;
    ensure!(sent == bytes.len(), "a receiver does not keep up");
    Ok(())
}

fn accept(listener: &TcpListener, size: usize, all: bool) -> anyhow::Result<Option<Receiver>> {
    let mut stream = match listener.accept() {
        Ok((stream, _)) => stream,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    while !head.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            // Somebody who only looked whether we are there.
            return Ok(None);
        }
        head.extend_from_slice(&piece[..count]);
    }
    let head = String::from_utf8(head)?;
    let between = |before: &str, after: char| head.split_once(before)?.1.split(after).next();
    let user = between("?user=", ' ')
        .context("a receiver without a name")?
        .to_owned();
    let key = between("Sec-WebSocket-Key: ", '\r').context("a receiver without a key")?;
    let accept = handshake::accept(key);
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )?;
    stream.set_nonblocking(true)?;
    let frames = (0..VARIANTS)
        .map(|variant| {
            let mut bytes = Vec::new();
            let data = match all {
                true => fanout::message(variant, size),
                false => message(&user, variant, size),
            };
            frame::plain(&mut bytes, TEXT, &data);
            bytes
        })
        .collect();
    Ok(Some(Receiver {
        stream,
        user,
        frames,
    }))
}
