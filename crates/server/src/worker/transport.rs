//! The layers between a socket and its connection, and output to the socket.

use veche_frontends::End;
use veche_net::{Buffer, ConnectionId, Driver};
use veche_worker::{TransportCommand, Write};

use super::preface::Preface;
use super::sealed::Seal;
use super::{Host, Rest};

/// The layer between a connection's socket and its own bytes; empty for a plain one.
#[derive(Default)]
pub(super) struct Transport {
    /// One pointer per connection: a PROXY header is complete before TLS starts.
    layer: Option<Box<Layer>>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "it is boxed, and a header takes a moment"
)]
pub(super) enum Layer {
    /// The header of a proxy has not been received completely.
    Preface(Preface),
    /// The peer uses TLS.
    Tls(Seal),
}

impl Transport {
    pub(super) fn tls(seal: Seal) -> Self {
        Self {
            layer: Some(Box::new(Layer::Tls(seal))),
        }
    }

    pub(super) fn preface(preface: Preface) -> Self {
        Self {
            layer: Some(Box::new(Layer::Preface(preface))),
        }
    }

    #[inline]
    pub(super) fn layer(&self) -> Option<&Layer> {
        self.layer.as_deref()
    }

    pub(super) fn preface_mut(&mut self) -> Option<&mut Preface> {
        match self.layer.as_deref_mut() {
            Some(Layer::Preface(preface)) => Some(preface),
            Some(Layer::Tls(_)) | None => None,
        }
    }

    #[inline]
    pub(super) fn seal(&self) -> Option<&Seal> {
        match self.layer() {
            Some(Layer::Tls(seal)) => Some(seal),
            Some(Layer::Preface(_)) | None => None,
        }
    }

    #[inline]
    pub(super) fn seal_mut(&mut self) -> Option<&mut Seal> {
        match self.layer.as_deref_mut() {
            Some(Layer::Tls(seal)) => Some(seal),
            Some(Layer::Preface(_)) | None => None,
        }
    }

    /// Removes the layer, if there is one: the connection's own bytes follow.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns the deadline of the layers that precede the connection's own bytes, in monotonic milliseconds;
    /// `u64::MAX` if there is none.
    pub(super) fn opens_by_ms(&self) -> u64 {
        match self.layer() {
            Some(Layer::Preface(preface)) => preface.until_ms(),
            Some(Layer::Tls(seal)) => seal.until_ms(),
            None => u64::MAX,
        }
    }

    /// Returns whether the peer's FIN has to wait for earlier bytes.
    pub(super) fn holds_end(&mut self) -> bool {
        self.seal_mut().is_some_and(Seal::holds_end)
    }
}

const _: () = assert!(size_of::<Transport>() == 8);

impl<A: Host> Rest<A> {
    /// Executes the worker's commands for transports.
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

    /// Sends the turn's output with one write per connection.
    pub(super) fn flush<D: Driver>(&mut self, driver: &mut D) {
        let mut sent_bytes = 0;
        while let Some(Write { id, bytes, end }) = self.worker.poll_write() {
            if end == End::Abort {
                driver.close(id);
                continue;
            }
            let transport = self.worker.transport_mut(id);
            let bytes = match transport.is_some_and(|transport| transport.seal().is_some()) {
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

    /// Sends bytes that the caller has counted.
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
