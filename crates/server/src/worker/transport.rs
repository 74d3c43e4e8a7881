//! What lies between a socket and its connection, and what leaves for the socket.

use veche_frontends::End;
use veche_net::{Buffer, ConnectionId, Driver};
use veche_worker::{TransportCommand, Write};

use super::preface::Preface;
use super::sealed::Seal;
use super::{Host, Rest};

/// What is kept beside each connection. Nothing of it for a plain one.
#[derive(Default)]
pub(super) struct Transport {
    /// The header of a proxy that has yet to come.
    pub(super) preface: Option<Box<Preface>>,
    /// TLS, where the peer speaks it.
    pub(super) seal: Option<Box<Seal>>,
}

impl Transport {
    /// By when what comes before the connection's own bytes has to be complete, in monotonic milliseconds; `u64::MAX` if
    /// nothing does.
    pub(super) fn opens_by_ms(&self) -> u64 {
        let preface = self.preface.as_ref().map(|preface| preface.until_ms());
        let seal = self.seal.as_ref().map(|seal| seal.until_ms());
        preface.or(seal).unwrap_or(u64::MAX)
    }

    /// Returns whether the peer's FIN waits for what came before it.
    pub(super) fn holds_end(&mut self) -> bool {
        self.seal.as_deref_mut().is_some_and(Seal::holds_end)
    }
}

impl<A: Host> Rest<A> {
    /// Carries out what the worker wants of transports.
    pub(super) fn command_transports<D: Driver>(&mut self, driver: &mut D) {
        while let Some(command) = self.worker.poll_transport() {
            match command {
                TransportCommand::Pause(id) => driver.pause(id),
                TransportCommand::Resume(id) => driver.resume(id),
                TransportCommand::SetTimer(id, due_ms) => driver.set_timer(id, due_ms),
                TransportCommand::Close(id) => driver.close(id),
            }
        }
    }

    /// Sends what the turn has made: one write a connection.
    pub(super) fn flush<D: Driver>(&mut self, driver: &mut D) {
        let mut sent_bytes = 0;
        while let Some(Write { id, bytes, end }) = self.worker.poll_write() {
            if end == End::Abort {
                driver.close(id);
                continue;
            }
            let transport = self.worker.transport_mut(id);
            let bytes = match transport.is_some_and(|transport| transport.seal.is_some()) {
                true => self.seal(id, bytes, end),
                false => bytes,
            };
            if !bytes.is_empty() {
                sent_bytes += bytes.len() as u64;
                self.send(driver, id, bytes);
            }
            if end == End::Shutdown {
                driver.shutdown(id);
                self.worker.handle_shut_down(id, driver.unsent(id));
            }
        }
        self.worker.shared().stats.bytes_sent.add(sent_bytes);
        while let Some(id) = self.worker.poll_unsent() {
            self.worker.handle_unsent(id, driver.unsent(id));
        }
        self.command_transports(driver);
    }

    /// Sends bytes that the caller counts.
    #[inline]
    pub(super) fn send<D: Driver>(&mut self, driver: &mut D, id: ConnectionId, bytes: Vec<u8>) {
        match driver.send(id, Buffer::Owned(bytes), false) {
            Some(buffer) => self.recycle(buffer),
            None => self.worker.handle_stalled(id, driver.unsent(id)),
        }
    }

    #[inline]
    pub(super) fn recycle(&mut self, buffer: Buffer) {
        if let Some(bytes) = buffer.reclaim() {
            self.worker.recycle(bytes);
        }
    }
}
