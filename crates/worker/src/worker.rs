//! [`Worker`]: the state, what happens to connections, and what transports are to do.

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

/// One worker without I/O. `A` is the type of its applications, `T` what its driver keeps beside each connection.
///
/// # Calls of a turn
///
/// 1. [`set_now`](Self::set_now), whenever the time has changed.
/// 2. Events of transports, in any order: [`handle_accepted`](Self::handle_accepted),
///    [`handle_received`](Self::handle_received), [`handle_ended`](Self::handle_ended),
///    [`handle_sent`](Self::handle_sent), [`handle_timeout`](Self::handle_timeout),
///    [`handle_closed`](Self::handle_closed). After each, or after several,
///    [`poll_transport`](Self::poll_transport) until it returns `None`.
/// 3. [`handle_credits`](Self::handle_credits) for each worker, then [`handle_message`](Self::handle_message) while
///    [`wants_message`](Self::wants_message).
/// 4. Completions, in any order: [`handle_durable`](Self::handle_durable), [`handle_identity`](Self::handle_identity),
///    [`handle_hook_decision`](Self::handle_verdict), [`handle_apps_stopped`](Self::handle_apps_stopped),
///    [`handle_clients_gone`](Self::handle_clients_gone), [`handle_services_ended`](Self::handle_services_ended).
/// 5. [`finish_turn`](Self::finish_turn).
/// 6. What is asked of others: [`poll_request`](Self::poll_request), [`poll_history`](Self::poll_history),
///    [`poll_channel_events`](Self::poll_channel_events), and [`handle_dialed`](Self::handle_dialed) or
///    [`handle_dial_failed`](Self::handle_dial_failed) for what applications dial.
/// 7. [`poll_transport`](Self::poll_transport), then [`poll_write`](Self::poll_write), then
///    [`poll_unsent`](Self::poll_unsent), each until `None`.
/// 8. [`poll_finished`](Self::poll_finished) for each worker, [`poll_message`](Self::poll_message) until `None`,
///    [`handle_credits`](Self::handle_credits) for each worker.
/// 9. [`end_turn`](Self::end_turn), [`poll_transport`](Self::poll_transport) once more, and [`state`](Self::state), which
///    says when the next turn has to begin.
///
/// A call with the id of a connection that is gone does nothing.
pub struct Worker<A: AppHost, T = ()> {
    pub(crate) id: WorkerId,
    pub(crate) limits: TurnLimits,
    pub(crate) shared: Context,
    pub(crate) slab: ConnectionSlab<T>,
    pub(crate) commands: VecDeque<TransportCommand>,
    pub(crate) requests: VecDeque<ExternalRequest>,
    /// Messages that belong to no lane of the hub's.
    pub(crate) outgoing: VecDeque<OutgoingMail<A::Message>>,
    /// Connections to continue next turn.
    pub(crate) resumable: Vec<ConnectionId>,
    /// Empty between uses.
    pub(crate) ids: Vec<ConnectionId>,
    /// Likewise: connections that have gone on in this turn and wait for credit again.
    pub(crate) resumed: Vec<ConnectionId>,
    pub(crate) touched: Vec<u32>,
    pub(crate) next_write: usize,
    /// The turn is finished, and what it wrote has not been taken out.
    pub(crate) has_writes: bool,
    pub(crate) unsent: Vec<ConnectionId>,
    pub(crate) next_unsent: usize,
    pub(crate) next_lane: usize,
    pub(crate) next_relay: usize,
    /// Messages taken in this turn.
    pub(crate) messages: usize,
    pub(crate) channel_events: Vec<ChannelEvent>,
    pub(crate) lost_events: u64,
    pub(crate) drain: Option<Drain>,
    pub(crate) is_log_failing: bool,
    /// There is work that waits for nothing.
    pub(crate) is_busy: bool,
    /// When spare memory is trimmed and history expired next.
    pub(crate) maintain_at_ms: u64,
    /// Nothing was left to trim, and nothing has happened since.
    pub(crate) is_trimmed: bool,
    apps: PhantomData<A>,
}

/// What a transport is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportCommand {
    /// Receive nothing until [`Resume`](Self::Resume).
    Pause(ConnectionId),
    /// Receive again.
    Resume(ConnectionId),
    /// Have [`Worker::handle_timeout`] called at this monotonic time in milliseconds; it replaces a later one.
    SetTimer(ConnectionId, u64),
    /// Close at once. [`Worker::handle_closed`] follows.
    Close(ConnectionId),
}

/// What is asked of the world around a worker.
#[derive(Debug)]
pub enum ExternalRequest {
    /// The back end is to decide on a command; answered by [`Worker::handle_hook_decision`] exactly once.
    Hook(HookRequest),
    /// The applications of this worker have done what they do at the end; when those of all workers have,
    /// [`Worker::handle_apps_stopped`] says so.
    AppsStopped,
    /// The last client of this worker is gone, in a drain; when those of all workers are,
    /// [`Worker::handle_clients_gone`] says so.
    ClientsGone,
    /// The services of this worker have ended, in a drain; when those of all workers have,
    /// [`Worker::handle_services_ended`] says so.
    ServicesEnded,
}

/// A connection that is gone.
#[derive(Debug)]
pub struct ClosedConnection<T> {
    /// What the driver kept beside it.
    pub transport: T,
    /// The address of the client.
    pub peer: IpAddr,
}

impl<A: AppHost, T> Worker<A, T> {
    /// Makes a worker without connections. Which worker it is its part of the hub says.
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

    /// Puts other limits in force.
    pub fn set_limits(&mut self, limits: TurnLimits) {
        self.limits = limits;
        begin_work(&limits, &mut self.shared);
    }

    /// Returns the number of this worker.
    #[must_use]
    pub fn index(&self) -> usize {
        self.id.0.into()
    }

    /// Returns how many workers there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.requests.mailer.lanes.len()
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slab.len()
    }

    /// Returns what the connections of this worker share.
    #[must_use]
    pub fn shared(&self) -> &Context {
        &self.shared
    }

    /// Returns the same to be changed: before the first turn, and for what no step of a turn concerns.
    pub fn shared_mut(&mut self) -> &mut Context {
        &mut self.shared
    }

    /// Sets the time.
    pub fn set_now(&mut self, now: Now) {
        self.shared.set_now(now);
    }

    /// Puts another configuration in force.
    pub fn set_config(&mut self, site: std::sync::Arc<FrontendConfig>, outbox_bytes_max: usize) {
        self.shared.set_config(site);
        let outboxes = &mut self.shared.requests.outboxes;
        outboxes.set_outbox_bytes_max(outbox_bytes_max);
    }

    /// A listener has accepted a connection. `listener` is its place in the site.
    pub fn handle_accepted(&mut self, id: ConnectionId, listener: u16, peer: IpAddr, transport: T) {
        self.shared.stats.connections.add(1);
        let connection = Connection::accept(id, listener, peer, &mut self.shared);
        self.slab.insert(id, connection, transport);
        self.update_connection(id);
    }

    /// A connection to another server is being opened for an application.
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

    /// A connection to another server cannot be opened.
    pub fn handle_dial_failed(&mut self, caller: DialId, why: &str) {
        self.with_apps(|apps, shared| apps.client_failed(caller.app, caller.token, why, shared));
        self.is_busy |= self.has_writes;
    }

    /// An application gives up a connection that it dials.
    pub fn hang_up(&mut self, caller: DialId) {
        // Rare, and there is no other way to find it.
        let found = (0..self.slab.end()).find_map(|index| {
            let id = self.slab.id_at(index)?;
            let entry = self.slab.get(id)?;
            (entry.connection.caller() == Some(caller)).then_some(id)
        });
        if let Some(id) = found {
            self.handle_failed(id, "not wanted any more");
            self.is_busy |= self.has_writes;
        }
    }

    /// Bytes of the peer; they may be overwritten.
    #[inline]
    pub fn handle_received(&mut self, id: ConnectionId, bytes: &mut [u8]) {
        self.with(id, |connection, shared| {
            connection.handle_received(id, bytes, shared);
        });
    }

    /// The peer has sent FIN.
    pub fn handle_ended(&mut self, id: ConnectionId) {
        self.with(id, |connection, shared| connection.handle_ended(id, shared));
    }

    /// The timer of a transport has fired.
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

    /// The timer of a transport has fired, and what had to come before the connection's own bytes is late.
    pub fn handle_late(&mut self, id: ConnectionId, why: &str) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.armed_ms = u64::MAX;
        }
        self.handle_failed(id, why);
    }

    /// The connection cannot go on, for this reason.
    pub fn handle_failed(&mut self, id: ConnectionId, why: &str) {
        self.with(id, |connection, shared| {
            connection.handle_failed(id, why, shared)
        });
    }

    /// The transport is gone, for this reason if nobody asked for it. Returns what is left of the connection.
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

    /// The client has shown a certificate that is trusted, before its first byte.
    pub fn handle_certificate(&mut self, id: ConnectionId, certified: CertificateNames) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.connection.handle_certificate(certified);
        }
    }

    /// A proxy has named its client, before the client's first byte.
    pub fn handle_proxy_header(&mut self, id: ConnectionId, client: IpAddr) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.connection.handle_proxy_header(client);
        }
    }

    /// Counts a connection among those of an address; returns whether that has room for it.
    pub fn count_address(&mut self, id: ConnectionId, client: IpAddr) -> bool {
        let entry = self.slab.get_mut(id);
        entry.is_none_or(|entry| entry.connection.count_address(client, &self.shared))
    }

    /// Answers a connection with these bytes and ends it.
    pub fn reject(&mut self, id: ConnectionId, answer: &[u8]) {
        self.with(id, |connection, shared| {
            connection.reject(id, answer, shared);
        });
    }

    /// What has been found out of the user behind a connection.
    pub fn handle_identity(&mut self, id: ConnectionId, finding: IdentityResult) {
        self.with(id, |connection, shared| {
            connection.handle_identity(id, finding, shared);
        });
    }

    /// What was decided on a command of a session.
    pub fn handle_hook_decision(
        &mut self,
        id: ConnectionId,
        question: HookRequestId,
        verdict: HookDecision,
    ) {
        self.with(id, |connection, shared| {
            connection.handle_hook_decision(id, question, verdict, shared);
        });
        self.is_busy |= self.has_writes;
    }

    /// Returns what the driver keeps beside a connection.
    #[inline]
    pub fn transport_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        self.slab.get_mut(id).map(|entry| &mut entry.transport)
    }

    /// Returns a connection.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.slab.get(id).map(|entry| &entry.connection)
    }

    /// Returns whether the peer has sent FIN.
    #[must_use]
    pub fn has_ended(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(Connection::has_ended)
    }

    /// Keeps a connection from receiving, whatever it wants itself, or ends that.
    pub fn hold(&mut self, id: ConnectionId, is_held: bool) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.is_held = is_held;
            self.update_connection(id);
        }
    }

    /// Makes sure that the timer of a transport fires by that monotonic time in milliseconds. One that fires early is
    /// looked at and set again, so activity never touches it.
    pub fn arm(&mut self, id: ConnectionId, deadline_ms: u64) {
        if let Some(entry) = self.slab.get_mut(id) {
            entry.arm(id, deadline_ms, &mut self.commands);
        }
    }

    /// Takes the next thing that a transport is to do.
    #[inline]
    pub fn poll_transport(&mut self) -> Option<TransportCommand> {
        self.commands.pop_front()
    }

    /// Lets a connection work, and then tells its transport what it wants now.
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

/// Sets what the events of the next turn may cost.
pub(crate) fn begin_work(limits: &TurnLimits, shared: &mut Context) {
    shared.work.set_share(limits.connection_work.max(1));
    shared.work.set_left(limits.event_work);
}
