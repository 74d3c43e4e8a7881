//! A driver that delivers queued input and accepts output at almost no cost, so that only the worker's instructions are
//! counted.
//!
//! A turn reports all closed connections, and then at most one event: the oldest connection not yet accepted, or else
//! the oldest message. Timers never fire, and the clock stands still.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use veche_net::{
    Buffer, CloseReason, ConnectionId, Detached, Driver, DriverEvent, ListenerId, Options, Waker,
};

/// Connections by index, their queued input, and what was sent to them.
pub(super) struct DirectDriver {
    options: Options,
    waker: Waker,
    now_ms: u64,
    /// Whether each connection is open, by index. An index is never reused.
    open: Vec<bool>,
    dialed: VecDeque<(ConnectionId, ListenerId, SocketAddr)>,
    arrivals: VecDeque<(ConnectionId, Vec<u8>)>,
    closing: VecDeque<ConnectionId>,
    sent_bytes: u64,
    /// The data sent to each transport; `None` if sent data is discarded.
    kept: Option<Vec<Vec<u8>>>,
}

impl DirectDriver {
    /// Creates a driver without connections, at `now_ms`, that keeps sent data.
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            options: Options::default(),
            waker: Waker::new().expect("a descriptor"),
            now_ms,
            open: Vec::new(),
            dialed: VecDeque::new(),
            arrivals: VecDeque::new(),
            closing: VecDeque::new(),
            sent_bytes: 0,
            kept: Some(Vec::new()),
        }
    }

    /// Opens a connection, to be accepted in a later turn.
    pub(super) fn dial(&mut self, listener: ListenerId, from: SocketAddr) -> ConnectionId {
        let id = ConnectionId {
            index: self.open.len() as u32,
            generation: 1,
        };
        self.open.push(true);
        self.dialed.push_back((id, listener, from));
        if let Some(kept) = &mut self.kept {
            kept.push(Vec::new());
        }
        id
    }

    /// Queues bytes from the peer, which the worker receives in a separate turn.
    pub(super) fn arrive(&mut self, id: ConnectionId, bytes: Vec<u8>) {
        self.arrivals.push_back((id, bytes));
    }

    /// Returns whether no input is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.dialed.is_empty() && self.arrivals.is_empty() && self.closing.is_empty()
    }

    /// Takes the data sent to a connection since the last call. Once [`forget`](Self::forget) was called, the result is
    /// always empty.
    pub(super) fn take_sent(&mut self, id: ConnectionId) -> Vec<u8> {
        let kept = self
            .kept
            .as_mut()
            .and_then(|kept| kept.get_mut(id.index as usize));
        kept.map(std::mem::take).unwrap_or_default()
    }

    /// Discards the sent data that has not been taken. From now on, sent data is only counted.
    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// Returns the number of bytes sent to all connections.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    fn is_open(&self, id: ConnectionId) -> bool {
        self.open.get(id.index as usize) == Some(&true)
    }
}

impl Driver for DirectDriver {
    /// Not supported: connections are opened by [`DirectDriver::dial`].
    fn listen(&mut self, _: OwnedFd) -> io::Result<ListenerId> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn pause_accept(&mut self, _: ListenerId) {}

    fn resume_accept(&mut self, _: ListenerId) {}

    fn connect_from(&mut self, _: SocketAddr, _: Option<IpAddr>) -> io::Result<ConnectionId> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn send(&mut self, id: ConnectionId, buffer: Buffer, _: bool) -> Option<Buffer> {
        if self.is_open(id) {
            self.sent_bytes += buffer.len() as u64;
            if let Some(kept) = &mut self.kept {
                kept[id.index as usize].extend_from_slice(buffer.as_slice());
            }
        }
        Some(buffer)
    }

    fn unsent(&self, _: ConnectionId) -> usize {
        0
    }

    fn pause(&mut self, _: ConnectionId) {}

    fn resume(&mut self, _: ConnectionId) {}

    fn shutdown(&mut self, _: ConnectionId) {}

    fn close(&mut self, id: ConnectionId) {
        if self.is_open(id) {
            self.open[id.index as usize] = false;
            self.closing.push_back(id);
        }
    }

    fn detach(&mut self, _: ConnectionId) -> Option<Detached> {
        None
    }

    fn set_timer(&mut self, _: ConnectionId, _: u64) {}

    fn clear_timer(&mut self, _: ConnectionId) {}

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn turn_within(
        &mut self,
        _: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()> {
        while let Some(id) = self.closing.pop_front() {
            let reason = CloseReason::Requested;
            sink(self, DriverEvent::Closed { id, reason });
        }
        if let Some((id, listener, peer)) = self.dialed.pop_front() {
            sink(self, DriverEvent::Accepted { id, listener, peer });
        } else if let Some((id, mut bytes)) = self.arrivals.pop_front()
            && self.is_open(id)
        {
            let bytes = &mut bytes[..];
            sink(self, DriverEvent::Received { id, bytes });
        }
        Ok(())
    }
}
