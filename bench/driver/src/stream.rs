//! What every load does with its sockets: non-blocking reads and writes, sealed where the server speaks TLS, and the
//! comparison of what comes with what must come.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use anyhow::{bail, ensure};
use rustls::{ClientConfig, ClientConnection};

/// A socket, and the TLS on it if there is any.
pub struct Stream {
    pub socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Plain, or with a handshake that begins with the first write.
    pub fn new(socket: TcpStream, tls: Option<&Arc<ClientConfig>>) -> anyhow::Result<Self> {
        let tls = tls.map(crate::tls::begin).transpose()?.map(Box::new);
        Ok(Self { socket, tls })
    }

    /// TLS itself has bytes for which the socket had no room: wait until it is writable.
    pub fn owes(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    pub fn tls(&self) -> Option<&ClientConnection> {
        self.tls.as_deref()
    }

    /// Says that nothing more will be sent, if TLS is spoken.
    pub fn say_goodbye(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                tls.send_close_notify();
                pay(tls, &mut self.socket)
            }
            None => Ok(()),
        }
    }

    /// Moves TLS' own bytes both ways, as far as the socket has some or takes some.
    pub fn shake(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        pay(tls, &mut self.socket)?;
        fill(tls, &mut self.socket)?;
        pay(tls, &mut self.socket)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.socket.read(buffer);
        };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            if !fill(tls, &mut self.socket)? {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }
}

impl Write for Stream {
    /// Under TLS all of it is taken, or nothing while older bytes wait.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.socket.write(bytes);
        };
        pay(tls, &mut self.socket)?;
        if tls.wants_write() && !tls.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = tls.writer().write(bytes)?;
        pay(tls, &mut self.socket)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What TLS wants to send, as far as there is room.
fn pay(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes what the socket has; false if it has nothing.
fn fill(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<bool> {
    match tls.read_tls(socket) {
        Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error),
    }
    tls.process_new_packets().map_err(io::Error::other)?;
    Ok(true)
}

/// Bytes read; 0 when there are none yet. An end is an error: no load closes first.
pub fn read(stream: &mut Stream, buffer: &mut [u8]) -> anyhow::Result<usize> {
    match stream.read(buffer) {
        Ok(0) => bail!("the server closed a connection"),
        Ok(count) => Ok(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Bytes written; 0 when there is no room.
pub fn write(stream: &mut Stream, bytes: &[u8]) -> anyhow::Result<usize> {
    match stream.write(bytes) {
        Ok(count) => Ok(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Bytes that must come again and again, and how far into them their receiver is.
pub struct Cycle {
    pub bytes: Vec<u8>,
    pub at: usize,
}

impl Cycle {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    /// Compares what came; how often the end of the cycle was in it.
    pub fn take(&mut self, mut came: &[u8]) -> anyhow::Result<usize> {
        let mut ends = 0;
        while !came.is_empty() {
            let count = came.len().min(self.bytes.len() - self.at);
            let (piece, behind) = came.split_at(count);
            ensure!(
                &self.bytes[self.at..self.at + count] == piece,
                "{:?} came, not the next message",
                String::from_utf8_lossy(piece)
            );
            self.at += count;
            if self.at == self.bytes.len() {
                self.at = 0;
                ends += 1;
            }
            came = behind;
        }
        Ok(ends)
    }
}
