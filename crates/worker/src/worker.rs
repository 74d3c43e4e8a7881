//! The [`Worker`]: its state, the events of its connections, and the commands for their transports.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::net::IpAddr;

use veche_frontends::hooks::{HookDecision, HookRequest, HookRequestId};
use veche_frontends::identity::{CertificateNames, IdentityResult};
use veche_frontends::{Connection, Context, DialCommand, DialId, FrontendConfig, Now};
use veche_hub::ChannelEvent;
use veche_types::{ConnectionId, WorkerId};

use crate::apps::AppHost;
use crate::drain::Drain;
use crate::limits::TurnLimits;
use crate::message::OutgoingMail;
use crate::slab::ConnectionSlab;

/// One worker without I/O. `A` is the type of its applications; `T` is the state that the driver keeps for each
/// connection.
///
/// # Calls of a turn
///
/// 1. [`set_now`](Self::set_now), whenever the time has changed.
/// 2. Events of transports, in any order: [`handle_accepted`](Self::handle_accepted),
///    [`handle_received`](Self::handle_received), [`handle_ended`](Self::handle_ended),
///    [`handle_sent`](Self::handle_sent), [`handle_timeout`](Self::handle_timeout) or
///    [`handle_late`](Self::handle_late), [`handle_failed`](Self::handle_failed),
///    [`handle_closed`](Self::handle_closed). Before the client's first byte:
///    [`handle_proxy_header`](Self::handle_proxy_header), then [`handle_certificate`](Self::handle_certificate). After
///    each event, or after several, [`poll_transport`](Self::poll_transport) until it returns `None`.
/// 3. [`handle_credits`](Self::handle_credits) for each worker, then [`handle_message`](Self::handle_message) while
///    [`wants_message`](Self::wants_message). Between messages, in the order of their arrival, commands of the process:
///    [`handle_drain`](Self::handle_drain), [`handle_drain_over`](Self::handle_drain_over),
///    [`handle_commands_lost`](Self::handle_commands_lost), [`set_config`](Self::set_config).
/// 4. [`set_log_failing`](Self::set_log_failing) and [`handle_durable`](Self::handle_durable) with a history log,
///    [`handle_engine`](Self::handle_engine) with an engine outside the process.
/// 5. Completions, in any order: [`handle_identity`](Self::handle_identity),
///    [`handle_hook_decision`](Self::handle_hook_decision).
/// 6. [`finish_turn`](Self::finish_turn).
/// 7. For applications: [`handle_dialed`](Self::handle_dialed) or [`handle_dial_failed`](Self::handle_dial_failed) for
///    connections that they dial, [`hang_up`](Self::hang_up) for those that they no longer need.
/// 8. Requests to the outside: [`poll_request`](Self::poll_request) until `None`. Hook requests may be answered at once
///    by [`handle_hook_decision`](Self::handle_hook_decision). In each turn of a drain
///    [`handle_drain_progress`](Self::handle_drain_progress). Then [`poll_history`](Self::poll_history),
///    [`engine_orders`](Self::engine_orders), [`poll_channel_events`](Self::poll_channel_events).
/// 9. [`poll_transport`](Self::poll_transport), then [`poll_write`](Self::poll_write), then
///    [`poll_unsent`](Self::poll_unsent), each until `None`, and [`poll_transport`](Self::poll_transport) again.
/// 10. [`poll_finished`](Self::poll_finished) for each worker, [`poll_message`](Self::poll_message) until `None`, or
///     until a message does not fit into its lane and is passed back by [`put_back`](Self::put_back), then
///     [`handle_credits`](Self::handle_credits) for each worker.
/// 11. [`end_turn`](Self::end_turn), then [`engine_orders`](Self::engine_orders) and
///     [`poll_transport`](Self::poll_transport) once more, and [`state`](Self::state), which returns when the next turn
///     has to begin.
///
/// Calls with the id of a closed connection do nothing.
pub struct Worker<A: AppHost, T = ()> {
    pub(crate) id: WorkerId,
    pub(crate) limits: TurnLimits,
    pub(crate) shared: Context,
    pub(crate) slab: ConnectionSlab<T>,
    pub(crate) commands: VecDeque<TransportCommand>,
    pub(crate) requests: VecDeque<ExternalRequest>,
    /// Messages to other workers outside the hub's queues: bans, list requests, and messages that were put back.
    pub(crate) outgoing: VecDeque<OutgoingMail<A::Message>>,
    /// Connections to resume in the next turn.
    pub(crate) resumable: Vec<ConnectionId>,
    /// A buffer for reuse, empty between uses.
    pub(crate) ids: Vec<ConnectionId>,
    /// A buffer for reuse: connections that were resumed in this turn and wait for a credit again.
    pub(crate) resumed: Vec<ConnectionId>,
    pub(crate) touched: Vec<u32>,
    pub(crate) next_write: usize,
    /// Whether the turn is finished but some of its writes were not polled yet.
    pub(crate) has_writes: bool,
    pub(crate) unsent: Vec<ConnectionId>,
    pub(crate) next_unsent: usize,
    pub(crate) next_lane: usize,
    pub(crate) next_relay: usize,
    /// The number of messages handled in this turn.
    pub(crate) messages: usize,
    pub(crate) channel_events: Vec<ChannelEvent>,
    pub(crate) lost_events: u64,
    pub(crate) drain: Option<Drain>,
    pub(crate) is_log_failing: bool,
    /// Whether work is left, so that the next turn must begin immediately.
    pub(crate) is_busy: bool,
    /// The time of the next maintenance, which frees spare memory and expires history, in monotonic milliseconds.
    pub(crate) maintain_at_ms: u64,
    /// Whether the last turn ended with maintenance that left nothing to free or expire. If so, no further maintenance
    /// is scheduled.
    pub(crate) is_trimmed: bool,
    apps: PhantomData<A>,
}

/// A command for the transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportCommand {
    /// Stop receiving on the transport until [`Resume`](Self::Resume).
    Pause(ConnectionId),
    /// Resume receiving on the transport.
    Resume(ConnectionId),
    /// Call [`Worker::handle_timeout`] at this time, in monotonic milliseconds. Replaces a timer that fires later.
    SetTimer(ConnectionId, u64),
    /// Close the transport immediately; [`Worker::handle_closed`] follows.
    Close(ConnectionId),
}

/// A request to the code outside the worker.
#[derive(Debug)]
pub enum ExternalRequest {
    /// A hook request for the back end, answered exactly once by [`Worker::handle_hook_decision`].
    Hook(HookRequest),
    /// The applications of this worker have stopped. See [`DrainProgress`].
    AppsStopped,
    /// In a drain: this worker has no client left.
    ClientsGone,
    /// In a drain: the services of this worker have ended.
    ServicesEnded,
}

/// The remaining data of a closed connection.
#[derive(Debug)]
pub struct ClosedConnection<T> {
    /// The state that the driver kept for the connection.
    pub transport: T,
    /// The IP address of the peer.
    pub peer: IpAddr,
}

impl<A: AppHost, T> Worker<A, T> {
    /// Creates a worker without connections. Its index is that of the hub in `shared`.
    pub fn new(mut shared: Context, limits: TurnLimits) -> Self {
        begin_work(&limits, &mut shared);
        Self {
            id: shared.hub.worker(),
            limits,
            shared,
            slab: ConnectionSlab::default(),
            commands: VecDeque::new(),
            requests: VecDeque::new(),
            outgoing: VecDeque::new(),
            resumable: Vec::new(),
            ids: Vec::new(),
            resumed: Vec::new(),
            touched: Vec::new(),
            next_write: 0,
            has_writes: false,
            unsent: Vec::new(),
            next_unsent: 0,
            next_lane: 0,
            next_relay: 0,
            messages: 0,
            channel_events: Vec::new(),
            lost_events: 0,
            drain: None,
            is_log_failing: false,
            is_busy: false,
            maintain_at_ms: 0,
            is_trimmed: false,
            apps: PhantomData,
        }
    }

    /// Sets the limits of the following turns.
    pub fn set_limits(&mut self, limits: TurnLimits) {
        self.limits = limits;
        begin_work(&limits, &mut self.shared);
    }

    /// Returns the index of this worker.
    #[must_use]
    pub fn index(&self) -> usize {
        self.id.0.into()
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.requests.mailer.lanes.len()
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slab.len()
    }

    /// Returns the context that the connections of this worker share.
    #[must_use]
    pub fn shared(&self) -> &Context {
        &self.shared
    }

    /// Returns the shared context mutably. For use before the first turn, and for state that no step of a turn uses: log
    /// messages, the shortage of memory, the requests of tests to the hub.
    pub fn shared_mut(&mut self) -> &mut Context {
        &mut self.shared
    }

    /// Sets the current time for the following calls.
    pub fn set_now(&mut self, now: Now) {
        self.shared.set_now(now);
    }

    /// Replaces the configuration after a reload.
    pub fn set_config(&mut self, site: std::sync::Arc<FrontendConfig>, outbox_bytes_max: usize) {
        self.shared.set_config(site);
        let outboxes = &mut self.shared.requests.outboxes;
        outboxes.set_outbox_bytes_max(outbox_bytes_max);
    }

    /// Handles a connection that the listener with index `listener` has accepted.
    pub fn handle_accepted(&mut self, id: ConnectionId, listener: u16, peer: IpAddr, transport: T) {
        self.shared.stats.connections.add(1);
        let connection = Connection::accept(id, listener, peer, &mut self.shared);
        self.slab.insert(id, connection, transport);
        self.update_connection(id);
    }

    /// Handles the driver's report that an outgoing connection for an application is being opened.
    pub fn handle_dialed(
        &mut self,
        id: ConnectionId,
        peer: IpAddr,
        dial: DialCommand,
        transport: T,
    ) {
        let connection = Connection::dial(id, peer, dial, &mut self.shared);
        self.slab.insert(id, connection, transport);
        self.update_connection(id);
        self.is_busy |= self.has_writes;
    }

    /// Reports to an application that its outgoing connection could not be opened.
    pub fn handle_dial_failed(&mut self, caller: DialId, why: &str) {
        self.with_apps(|apps, shared| apps.client_failed(caller.app, caller.token, why, shared));
        self.is_busy |= self.has_writes;
    }

    /// Aborts the opening of an outgoing connection because its application has abandoned it.
    pub fn hang_up(&mut self, caller: DialId) {
        // A linear search is fast enough, since this call is rare.
        let found = (0..self.slab.end()).find_map(|index| {
            let id = self.slab.id_at(index)?;
            let entry = self.slab.get(id)?;
            (entry.connection.caller() == Some(caller)).then_some(id)
        });
        if let Some(id) = found {
            self.handle_failed(id, "the application no longer needs the connection");
            self.is_busy |= self.has_writes;
        }
    }

    /// Handles received bytes. The call may overwrite them, because WebSocket frames are unmasked in place.
    #[inline]
    pub fn handle_received(&mut self, id: ConnectionId, bytes: &mut [u8]) {
        self.with(id, |connection, shared| {
            connection.handle_received(id, bytes, shared);
        });
    }

    /// Handles the peer's FIN, which ends the peer's direction of the transport.
    pub fn handle_ended(&mut self, id: ConnectionId) {
        self.with(id, |connection, shared| connection.handle_ended(id, shared));
    }

    /// Handles a transport's timer that has fired.
    pub fn handle_timeout(&mut self, id: ConnectionId) {
        let Some(entry) = self.slab.get_mut(id) else {
            return;
        };
        entry.armed_ms = u64::MAX;
        let stalled_since_ms = entry.stall.since_ms();
        entry
            .connection
            .handle_timeout(id, stalled_since_ms, &mut self.shared);
        self.update_connection(id);
        if let Some(since_ms) = stalled_since_ms {
            let limit_ms = self.shared.config.limits.write_timeout_ms;
            self.arm(id, since_ms + limit_ms);
        }
    }

    /// Handles a transport's timer that has fired before the TLS handshake or PROXY header was complete.
    pub fn handle_late(&mut self, id: ConnectionId, why: &str) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.armed_ms = u64::MAX;
        }
        self.handle_failed(id, why);
    }

    /// Handles the failure of a connection; `why` is the reason for logs.
    pub fn handle_failed(&mut self, id: ConnectionId, why: &str) {
        self.with(id, |connection, shared| {
            connection.handle_failed(id, why, shared)
        });
    }

    /// Handles the close of a transport; `why` is the reason, or `None` if the worker requested it. Returns the
    /// remaining data of the connection.
    pub fn handle_closed(
        &mut self,
        id: ConnectionId,
        why: Option<&str>,
    ) -> Option<ClosedConnection<T>> {
        let mut entry = self.slab.remove(id)?;
        let (connection, shared) = (&mut entry.connection, &mut self.shared);
        if let Some(why) = why
            && connection.caller().is_some()
        {
            connection.handle_failed(id, why, shared);
        }
        connection.handle_closed(id, shared);
        if connection.listener().is_some() {
            shared.stats.connections.sub(1);
        }
        Some(ClosedConnection {
            transport: entry.transport,
            peer: entry.connection.peer,
        })
    }

    /// Handles a trusted client certificate. Called before the client's first byte is received.
    pub fn handle_certificate(&mut self, id: ConnectionId, certificate_names: CertificateNames) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.connection.handle_certificate(certificate_names);
        }
    }

    /// Handles the client address from a PROXY header. Called before the client's first byte is received.
    pub fn handle_proxy_header(&mut self, id: ConnectionId, client: IpAddr) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.connection.handle_proxy_header(client);
        }
    }

    /// Counts a connection towards the limit of an IP address. Returns whether the address is within its limit.
    pub fn count_address(&mut self, id: ConnectionId, client: IpAddr) -> bool {
        let entry = self.slab.get_mut(id);
        entry.is_none_or(|entry| entry.connection.count_address(client, &self.shared))
    }

    /// Sends the given bytes and ends the connection.
    pub fn reject(&mut self, id: ConnectionId, answer: &[u8]) {
        self.with(id, |connection, shared| {
            connection.reject(id, answer, shared);
        });
    }

    /// Handles the authentication result of a connection.
    pub fn handle_identity(&mut self, id: ConnectionId, identity_result: IdentityResult) {
        self.with(id, |connection, shared| {
            connection.handle_identity(id, identity_result, shared);
        });
    }

    /// Handles a hook decision on a command of a session.
    pub fn handle_hook_decision(
        &mut self,
        id: ConnectionId,
        request_id: HookRequestId,
        decision: HookDecision,
    ) {
        self.with(id, |connection, shared| {
            connection.handle_hook_decision(id, request_id, decision, shared);
        });
        self.is_busy |= self.has_writes;
    }

    /// Returns the state that the driver keeps for a connection.
    #[inline]
    pub fn transport_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        self.slab.get_mut(id).map(|entry| &mut entry.transport)
    }

    /// Returns the connection with this id.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.slab.get(id).map(|entry| &entry.connection)
    }

    /// Returns whether the peer has ended its direction of the transport (FIN).
    #[must_use]
    pub fn has_ended(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(Connection::has_ended)
    }

    /// Pauses (`true`) or releases (`false`) a connection's input. The input stays paused as long as the driver or the
    /// connection itself pauses it.
    pub fn hold(&mut self, id: ConnectionId, is_held: bool) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.is_held = is_held;
            self.update_connection(id);
        }
    }

    /// Ensures that the transport's timer fires at `deadline_ms`, in monotonic milliseconds, or earlier. A timer that
    /// fires early is set again for the actual deadline, so activity on the connection need not move the timer.
    pub fn arm(&mut self, id: ConnectionId, deadline_ms: u64) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.arm(id, deadline_ms, &mut self.commands);
        }
    }

    /// Removes and returns the next command for a transport.
    #[inline]
    pub fn poll_transport(&mut self) -> Option<TransportCommand> {
        self.commands.pop_front()
    }

    /// Calls a function with a connection, then updates the connection's transport.
    #[inline]
    pub(crate) fn with(
        &mut self,
        id: ConnectionId,
        work: impl FnOnce(&mut Connection, &mut Context),
    ) {
        if let Some(entry) = self.slab.get_mut(id) {
            self.shared.begin_share();
            work(&mut entry.connection, &mut self.shared);
            entry.update_timer(id, &mut self.commands);
        }
    }

    fn update_connection(&mut self, id: ConnectionId) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.update_timer(id, &mut self.commands);
        }
    }
}

/// Resets the work budgets for the events of the next turn.
pub(crate) fn begin_work(limits: &TurnLimits, shared: &mut Context) {
    shared.work.set_share(limits.connection_work.max(1));
    shared.work.set_left(limits.event_work);
}
