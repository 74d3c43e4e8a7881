//! A simulated network that records every call and every event.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use veche_net::{
    Buffer, CloseReason, ConnectionId, Detached, Driver, DriverEvent, ListenerId, Options,
    Simulated, Waker,
};
use veche_sim::worker_driver::{Conditions, TransportEvent, TransportInput, WorkerOutput};

use super::OutputRecord;

/// A driver that wraps the simulated network.
pub(super) struct RecordingDriver {
    network: Simulated,
    /// A placeholder that is swapped with `network` during a turn, because the turn and the handling of its events
    /// can't both borrow `network`.
    spare: Option<Simulated>,
    record: OutputRecord,
    /// Open transports, and whether they are paused.
    open: BTreeMap<ConnectionId, bool>,
    /// The number of bytes that an outgoing transport accepts while its peer does not read.
    room_bytes: usize,
    /// Set at the start of a turn, and cleared by the turn's first wait, so that only this wait is recorded.
    pub(super) is_turn: bool,
}

impl RecordingDriver {
    pub(super) fn new(conditions: &Conditions, listeners: usize, record: OutputRecord) -> Self {
        let network = || {
            let options = Options {
                low_water_bytes: conditions.low_water_bytes,
                ..Options::default()
            };
            let mut network = Simulated::without_choice(options, 0).expect("a descriptor");
            for _ in 0..listeners {
                network.add_listener();
            }
            network
        };
        Self {
            network: network(),
            spare: Some(network()),
            record,
            open: BTreeMap::new(),
            room_bytes: conditions.room_bytes,
            is_turn: false,
        }
    }

    pub(super) fn set_now_ms(&mut self, now_ms: u64) {
        self.network.set_now_ms(now_ms);
    }

    pub(super) fn dial(&mut self, listener: u16, room: usize) -> ConnectionId {
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 50_000));
        let id = self.network.dial(ListenerId(listener.into()), from);
        self.network.set_room(id, room);
        self.open.insert(id, false);
        id
    }

    /// Passes input from the simulated world to a transport. Returns whether the input causes an event.
    pub(super) fn put(&mut self, id: ConnectionId, arrival: TransportInput) -> bool {
        match arrival {
            TransportInput::Bytes(bytes) => self.network.write(id, bytes),
            TransportInput::Fin => self.network.finish(id),
            TransportInput::Reset => {
                self.open.remove(&id);
                self.network.reset(id);
            }
            TransportInput::Room(bytes) => {
                self.network.make_room(id, bytes);
                return self.network.unsent(id) > 0;
            }
            TransportInput::Connected => self.network.accept_dial(id),
        }
        true
    }

    pub(super) fn receives(&self, id: ConnectionId) -> bool {
        self.open.get(&id) == Some(&false)
    }

    fn note(&self, output: WorkerOutput) {
        self.record.lock().push(output);
    }

    /// Takes the bytes that the connection's peer has received since the last call.
    fn take_received(&mut self, id: ConnectionId) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.network.read(id, &mut bytes);
        bytes
    }

    fn note_event(&mut self, event: &DriverEvent<'_>) {
        let (id, transport_event) = match *event {
            DriverEvent::Accepted { id, .. } => (id, TransportEvent::Accepted),
            DriverEvent::Connected { id } => (id, TransportEvent::Connected),
            DriverEvent::Received { id, ref bytes } => (id, TransportEvent::Received(bytes.len())),
            DriverEvent::Ended { id } => (id, TransportEvent::Ended),
            DriverEvent::Sent { id, .. } => (id, TransportEvent::Sent),
            DriverEvent::Progressed { id } => (id, TransportEvent::Progressed),
            DriverEvent::Drained { id } => (id, TransportEvent::Drained),
            DriverEvent::Timer { id } => (id, TransportEvent::Timer),
            DriverEvent::Closed { id, reason } => {
                let is_reset = reason == CloseReason::Reset;
                (id, TransportEvent::Closed { is_reset })
            }
            DriverEvent::AcceptStalled { .. } | DriverEvent::Woken => return,
        };
        if matches!(
            transport_event,
            TransportEvent::Sent | TransportEvent::Progressed | TransportEvent::Drained
        ) {
            let bytes = self.take_received(id);
            if !bytes.is_empty() {
                let unsent = self.network.unsent(id);
                self.note(WorkerOutput::Sent { id, bytes, unsent });
            }
        }
        self.note(WorkerOutput::Event(id, transport_event));
    }
}

impl Driver for RecordingDriver {
    fn listen(&mut self, socket: OwnedFd) -> io::Result<ListenerId> {
        self.network.listen(socket)
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        self.note(WorkerOutput::Accepts(listener.0 as u16, false));
        self.network.pause_accept(listener);
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        self.note(WorkerOutput::Accepts(listener.0 as u16, true));
        self.network.resume_accept(listener);
    }

    fn connect_from(&mut self, to: SocketAddr, from: Option<IpAddr>) -> io::Result<ConnectionId> {
        if to.port() == 0 {
            return Err(io::Error::other("nothing is there"));
        }
        let id = self.network.connect_from(to, from)?;
        self.network.set_room(id, self.room_bytes);
        self.open.insert(id, false);
        self.note(WorkerOutput::Dialed(id, to));
        Ok(id)
    }

    fn send(&mut self, id: ConnectionId, buffer: Buffer, more: bool) -> Option<Buffer> {
        let before = self.network.unsent(id);
        let back = self.network.send(id, buffer, more);
        let (bytes, unsent) = (self.take_received(id), self.network.unsent(id));
        if !bytes.is_empty() || unsent > before {
            self.note(WorkerOutput::Sent { id, bytes, unsent });
        }
        back
    }

    fn unsent(&self, id: ConnectionId) -> usize {
        self.network.unsent(id)
    }

    fn pause(&mut self, id: ConnectionId) {
        self.note(WorkerOutput::Paused(id));
        self.open
            .entry(id)
            .and_modify(|is_paused| *is_paused = true);
        self.network.pause(id);
    }

    fn resume(&mut self, id: ConnectionId) {
        self.note(WorkerOutput::Resumed(id));
        self.open
            .entry(id)
            .and_modify(|is_paused| *is_paused = false);
        self.network.resume(id);
    }

    fn shutdown(&mut self, id: ConnectionId) {
        self.note(WorkerOutput::ShutDown(id));
        self.network.shutdown(id);
    }

    fn close(&mut self, id: ConnectionId) {
        self.note(WorkerOutput::Closing(id));
        self.open.remove(&id);
        self.network.close(id);
    }

    fn detach(&mut self, id: ConnectionId) -> Option<Detached> {
        self.network.detach(id)
    }

    fn set_timer(&mut self, id: ConnectionId, deadline_ms: u64) {
        self.note(WorkerOutput::TimerSet(id, deadline_ms));
        self.network.set_timer(id, deadline_ms);
    }

    fn clear_timer(&mut self, id: ConnectionId) {
        self.network.clear_timer(id);
    }

    fn waker(&self) -> Waker {
        self.network.waker()
    }

    fn now_ms(&self) -> u64 {
        self.network.now_ms()
    }

    fn options(&self) -> &Options {
        self.network.options()
    }

    fn turn_within(
        &mut self,
        timeout: Option<Duration>,
        sink: &mut impl FnMut(&mut Self, DriverEvent<'_>),
    ) -> io::Result<()> {
        if mem::take(&mut self.is_turn) {
            let within_ms = timeout.map(|timeout| timeout.as_millis() as u64);
            self.note(WorkerOutput::Waits(within_ms));
        }
        let spare = self
            .spare
            .take()
            .expect("a turn must not begin within another turn");
        let mut network = mem::replace(&mut self.network, spare);
        let result = network.turn_within(timeout, &mut |network, event| {
            mem::swap(network, &mut self.network);
            self.note_event(&event);
            sink(self, event);
            mem::swap(network, &mut self.network);
        });
        self.spare = Some(mem::replace(&mut self.network, network));
        result
    }
}
