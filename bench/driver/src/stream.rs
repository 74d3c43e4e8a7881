//! What every load does with its sockets: non-blocking reads and writes, and the comparison of what comes with what
//! must come.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use anyhow::{bail, ensure};

/// Bytes read; 0 when there are none yet. An end is an error: no load closes first.
pub fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> anyhow::Result<usize> {
    match stream.read(buffer) {
        Ok(0) => bail!("the server closed a connection"),
        Ok(count) => Ok(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Bytes written; 0 when there is no room.
pub fn write(stream: &mut TcpStream, bytes: &[u8]) -> anyhow::Result<usize> {
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
