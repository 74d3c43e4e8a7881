//! The state of a thread except its driver and its load: clients, buffers, and counts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use veche_net::{Buffer, ConnectionId, Driver, Epoll};
use veche_proto::websocket::Codecs;

use crate::client::{AddressFamilyChoice, ClientState, ClientTls, LoadClient};
use crate::clock::MILLISECOND;
use crate::plan::{Endpoint, Plan};
use crate::schedule::Schedule;
use crate::tally::{ErrorCase, Tally};

/// Maximum number of spare buffers.
const SPARE_MAX: usize = 256;
/// Maximum size of a spare buffer in bytes.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// Limits on unsent bytes, per client and per thread. An open loop sends nothing more when one of
/// them is reached. A single message may exceed them.
const UNSENT_BYTES_MAX: usize = 1024 * 1024;
const UNSENT_IN_ALL_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The minimum time after the end of the measured time, in addition to the shortest latency, in which an answer still
/// counts as in time.
const GRACE_NS: u64 = 100 * MILLISECOND;

/// The state of a thread except its load and its driver. The driver is separate because it is
/// borrowed while it delivers events.
pub(crate) struct EngineState {
    pub(crate) plan: Arc<Plan>,
    pub(crate) tally: Tally,
    /// Arrival time of the bytes being processed. While no bytes are processed, the start of the event
    /// loop's current iteration.
    pub(crate) now_ns: u64,
    /// The start of the measured time (`until_ns` is its end); `u64::MAX` before it has begun.
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// The time up to which answers count as in time. It is computed at the first answer after the
    /// measured time.
    pub(super) grace_until_ns: Option<u64>,
    /// Whether heartbeats are configured.
    pub(super) has_heartbeats: bool,
    pub(crate) rng: fastrand::Rng,
    pub(crate) clients: Vec<LoadClient>,
    /// The client of each transport, by transport index.
    pub(super) client_by_slot: Vec<u32>,
    pub(super) trusts: Vec<Option<ClientTls>>,
    pub(super) codecs: Codecs,
    /// The client whose input is being processed.
    pub(super) current: Option<u32>,
    /// The output of the current client.
    pub(super) out: Vec<u8>,
    pub(super) encrypted: Vec<u8>,
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) opening: u32,
    pub(super) sources: Vec<IpAddr>,
    pub(super) next_source: usize,
    /// The resolved addresses of each endpoint.
    pub(super) families: Vec<EndpointAddresses>,
    /// Number of unsent bytes of each client.
    pub(super) unsent: Vec<usize>,
    /// Number of unsent bytes of all clients.
    pub(super) unsent_in_all: usize,
    pub(super) work_began_ns: u64,
}

/// The addresses of an endpoint.
pub(super) struct EndpointAddresses {
    pub(super) addresses: Vec<Vec<SocketAddr>>,
    /// The address family with which the latest connection to the endpoint succeeded.
    pub(super) preferred: AddressFamilyChoice,
}

impl EndpointAddresses {
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        Self {
            addresses: endpoint.target.families(),
            preferred: AddressFamilyChoice::First,
        }
    }
}

impl EngineState {
    #[inline]
    pub(super) fn find(&self, id: ConnectionId) -> Option<u32> {
        let client_index = *self.client_by_slot.get(id.index as usize)?;
        let client = self.clients.get(client_index as usize)?;
        (client.transport == id && !matches!(client.state, ClientState::Closed))
            .then_some(client_index)
    }

    /// Returns whether a time is within the measured time.
    #[inline]
    pub(crate) fn is_measured(&self, at_ns: u64) -> bool {
        self.from_ns <= at_ns && at_ns < self.until_ns
    }

    /// Counts an error. Does not end the connection.
    pub(crate) fn fault(&mut self, fault: &ErrorCase) {
        self.tally.fault(fault);
        if self.is_measured(self.now_ns) {
            self.tally.latency.error(self.now_ns - self.from_ns);
        }
    }

    /// If a message of an open loop is due, removes it from the schedule and returns its due time, otherwise `None`.
    /// Counts the message if it is late.
    pub(crate) fn take_due(&mut self, pace: &mut Schedule) -> Option<u64> {
        let due = pace.pass(self.now_ns, self.until_ns)?;
        if self.now_ns - due > MILLISECOND && self.is_measured(due) {
            self.tally.late_sends += 1;
        }
        Some(due)
    }

    /// If the message is a heartbeat, counts it and returns the answer, otherwise `None`.
    #[cold]
    pub(super) fn heartbeat_answer(
        &mut self,
        client_index: u32,
        message: &[u8],
    ) -> Option<Vec<u8>> {
        let endpoint = self.clients[client_index as usize].endpoint;
        let heartbeats = &self.plan.endpoints[endpoint as usize].heartbeats;
        let answer = heartbeats.iter().find_map(|one| one.answer(message));
        self.tally.heartbeats += u64::from(answer.is_some());
        answer
    }

    /// Returns the time that decides whether an answer arriving now belongs to the measured time:
    /// in an open loop its message's due time, in a closed loop the current time.
    #[inline]
    pub(crate) fn counts_from(&self, since_ns: u64, is_open_loop: bool) -> u64 {
        if is_open_loop { since_ns } else { self.now_ns }
    }

    /// Counts an answer to a message sent or due at `since_ns`. Its latency counts if `counts_from`
    /// is in the measured time. The throughput counts it if the current time is in the measured
    /// time.
    #[inline]
    pub(crate) fn answered(&mut self, since_ns: u64, counts_from: u64, bytes: usize) {
        let latency_ns = self.now_ns.saturating_sub(since_ns);
        if self.received(counts_from, bytes) {
            self.tally.latency.times.record(latency_ns);
        }
        if self.is_measured(self.now_ns) {
            self.tally.came += 1;
            let at_ns = self.now_ns - self.from_ns;
            self.tally.latency.came(at_ns, latency_ns);
        }
    }

    /// Counts a failed answer, such as a response with status 500. Latency and throughput exclude
    /// it.
    pub(crate) fn failed(&mut self, counts_from: u64, bytes: usize) {
        self.received(counts_from, bytes);
    }

    /// Counts an answer if `counts_from` is in the measured time, and returns whether it is.
    #[inline]
    fn received(&mut self, counts_from: u64, bytes: usize) -> bool {
        let is_measured = self.is_measured(counts_from);
        if is_measured {
            self.tally.received += 1;
            self.tally.bytes_received += bytes as u64;
            self.tally.in_time += u64::from(self.is_in_time());
        }
        is_measured
    }

    /// Returns whether an answer arriving now shows that the server keeps up. The deadline is the
    /// end of the measured time, plus the shortest measured latency, plus 1 % of the measured time
    /// but at least [`GRACE_NS`].
    #[inline]
    fn is_in_time(&mut self) -> bool {
        self.now_ns < self.until_ns || self.now_ns < self.grace_until_ns()
    }

    fn grace_until_ns(&mut self) -> u64 {
        let latency_ns = self.tally.latency.times.min_ns();
        let grace_ns = (self.until_ns.saturating_sub(self.from_ns) / 100).max(GRACE_NS);
        // The deadline is computed only once, so that the latency of later answers does not change it.
        *self
            .grace_until_ns
            .get_or_insert(self.until_ns.saturating_add(latency_ns + grace_ns))
    }

    /// Counts a message sent or due at `at_ns`.
    #[inline]
    pub(crate) fn sent(&mut self, at_ns: u64, bytes: usize) {
        if self.is_measured(at_ns) {
            self.tally.sent += 1;
            self.tally.bytes_sent += bytes as u64;
        }
    }

    pub(crate) fn is_open(&self, client_index: u32) -> bool {
        self.clients[client_index as usize].state.is_open()
    }

    pub(crate) fn has_open(&self) -> bool {
        self.clients.iter().any(|client| client.state.is_open())
    }

    /// Returns whether any connection is being opened.
    pub(crate) fn has_opening(&self) -> bool {
        self.opening > 0
    }

    pub(crate) fn is_closed(&self, client_index: u32) -> bool {
        matches!(
            self.clients[client_index as usize].state,
            ClientState::Closed
        )
    }

    /// Returns whether a client has too many unsent bytes because its server does not read.
    pub(crate) fn is_full(&self, client_index: u32) -> bool {
        let unsent = self.unsent[client_index as usize];
        unsent > UNSENT_BYTES_MAX || (unsent > 0 && self.unsent_in_all > UNSENT_IN_ALL_BYTES_MAX)
    }

    /// Returns whether any open client has too many unsent bytes.
    pub(crate) fn has_full(&self) -> bool {
        (0..self.clients.len() as u32)
            .any(|client_index| self.is_open(client_index) && self.is_full(client_index))
    }

    pub(super) fn set_unsent(&mut self, client_index: u32, bytes: usize) {
        let unsent = &mut self.unsent[client_index as usize];
        self.unsent_in_all = self.unsent_in_all - *unsent + bytes;
        *unsent = bytes;
        let most = &mut self.tally.unsent_bytes_max;
        *most = (*most).max(self.unsent_in_all as u64);
    }

    /// Returns the first client that is open, not full and accepted by `may`. The search starts at `from` and wraps around
    /// at `count`.
    pub(crate) fn find_open(
        &self,
        from: u32,
        count: u32,
        may: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        (from..count).chain(0..from).find(|client_index| {
            self.is_open(*client_index) && !self.is_full(*client_index) && may(*client_index)
        })
    }

    pub(super) fn recycle(&mut self, buffer: Buffer) {
        if let Some(bytes) = buffer.reclaim()
            && bytes.capacity() <= SPARE_BYTES_MAX
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(bytes);
        }
    }

    /// Passes `out` to the transport of the client `client_index`.
    #[inline]
    pub(super) fn flush(&mut self, driver: &mut Epoll, client_index: u32) {
        let client = &mut self.clients[client_index as usize];
        if let Some(tls) = &mut client.tls {
            tls.send(&self.out, &mut self.encrypted);
            self.out.clear();
            std::mem::swap(&mut self.out, &mut self.encrypted);
        }
        if self.out.is_empty() {
            return;
        }
        let bytes = std::mem::replace(&mut self.out, self.spare.pop().unwrap_or_default());
        let id = client.transport;
        match driver.send(id, bytes.into(), false) {
            Some(buffer) => self.recycle(buffer),
            None => self.set_unsent(client_index, driver.unsent(id)),
        }
    }

    /// Makes `out` the output buffer of `client_index`. Returns the previous content if it belongs
    /// to another client.
    #[inline]
    pub(super) fn begin_other(&mut self, client_index: u32) -> Option<Vec<u8>> {
        if self.current == Some(client_index) {
            return None;
        }
        Some(std::mem::replace(
            &mut self.out,
            self.spare.pop().unwrap_or_default(),
        ))
    }

    #[inline]
    pub(super) fn end_other(
        &mut self,
        driver: &mut Epoll,
        client_index: u32,
        begun: Option<Vec<u8>>,
    ) {
        if let Some(before) = begun {
            self.flush(driver, client_index);
            let empty = std::mem::replace(&mut self.out, before);
            self.recycle(Buffer::Owned(empty));
        }
    }
}
