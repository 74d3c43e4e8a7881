//! The interface between a world and the driver of its workers: inputs of a worker, and its outputs.
//!
//! A world uses workers only through [`WorkerDriver`], which has two implementations: `simulated_driver` is the
//! simulator's own, and a test of the server wraps the server's driver with `veche_net::Simulated` and mailboxes. Both
//! must produce the same [`WorkerOutput`]s in the same order for the same calls, so everything that a world can observe
//! passes through here.
//!
//! To add an input, add a method or a field of [`TurnInput`]; to add an output, a variant of [`WorkerOutput`] with its
//! text in [`WorkerOutput::note`]. Then extend both implementations.

use std::convert::Infallible;
use std::net::SocketAddr;

use veche_frontends::hooks::{HookDecision, HookRequest, HookRequestId};
use veche_frontends::{Context, Now, ShutdownReason};
use veche_hub::{ConnectionId, LogBatch};
use veche_nodes::engine::channel::{Event, Order};
use veche_worker::{TurnLimits, TurnState, WorkerMessage};

use crate::apps::BackEndApp;
use crate::trace::Trace;

/// A message between workers of a world.
pub type WorldMessage = WorkerMessage<Infallible>;

/// The maximum number of input bytes that arrive at once: the size of a driver's receive buffer.
pub const RECEIVE_BYTES_MAX: usize = 64 << 10;

/// The initial conditions of all workers of a process.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The clock at the start.
    pub now: Now,
    /// The work limits of a turn.
    pub limits: TurnLimits,
    /// Maximum number of unprocessed data messages between two workers, as counted by their hubs.
    pub credits: u32,
    /// The low-water mark of a transport's queue.
    pub low_water_bytes: usize,
    /// Number of bytes that a transport to another server accepts before that server reads.
    pub room_bytes: usize,
    /// Whether histories are written to a log.
    pub is_logged: bool,
}

/// Starts the workers of one process.
pub type StartWorkers = fn(Vec<Context>, &Conditions) -> Vec<Box<dyn WorkerDriver>>;

/// An item that a lane carries to a worker.
#[derive(Debug)]
pub enum LaneMail {
    /// A message of another worker.
    Message(WorldMessage),
    /// An order to drain: all connections close within this many milliseconds, for the given reason.
    Drain(u64, ShutdownReason),
}

/// An input of a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportInput {
    /// Bytes from the peer, at most [`RECEIVE_BYTES_MAX`].
    Bytes(Vec<u8>),
    /// FIN from the peer.
    Fin,
    /// RST from the peer.
    Reset,
    /// The transport accepts this many more bytes.
    Room(usize),
    /// The other server accepted the dialed connection.
    Connected,
}

/// The inputs of a turn.
#[derive(Debug)]
pub struct TurnInput {
    /// The clock during the turn.
    pub now: Now,
    /// By receiving worker, the number of data messages that were sent and are not processed yet.
    pub unfinished: Vec<u32>,
    /// The items that arrive, by lane: one lane for each sending worker, then the lane for orders to drain.
    pub mail: Vec<Vec<LaneMail>>,
    /// The number of the last durable batch of the log; `None` if the worker was already notified of it.
    pub durable: Option<u64>,
    /// Events of the engine outside the process, if there is one.
    pub engine: Vec<Event>,
    /// Decisions on hook requests.
    pub decisions: Vec<(ConnectionId, HookRequestId, HookDecision)>,
}

/// An event that a transport reports to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportEvent {
    /// A listener accepted the transport.
    Accepted,
    /// A dialed connection is established.
    Connected,
    /// This many bytes were received.
    Received(usize),
    /// The peer sent FIN.
    Ended,
    /// A buffer was sent completely.
    Sent,
    /// A part of a buffer was sent.
    Progressed,
    /// The bytes to be sent fell to the low-water mark or below it.
    Drained,
    /// The transport's timer fired.
    Timer,
    /// The transport was closed as requested, or reset.
    Closed {
        /// Whether the peer reset the transport.
        is_reset: bool,
    },
}

/// An output of a worker or of one of its transports.
#[derive(Debug)]
pub enum WorkerOutput {
    /// A turn begins. Without events the worker would have waited for this many milliseconds; `None`: forever.
    Waits(Option<u64>),
    /// A transport reports an event to its worker.
    Event(ConnectionId, TransportEvent),
    /// A transport stops receiving.
    Paused(ConnectionId),
    /// A transport resumes receiving.
    Resumed(ConnectionId),
    /// The timer of a transport is set to this monotonic time in milliseconds.
    TimerSet(ConnectionId, u64),
    /// A transport accepted bytes.
    Sent {
        /// Id of the sending transport.
        id: ConnectionId,
        /// The bytes that the transport accepted.
        bytes: Vec<u8>,
        /// Number of bytes that wait because the transport has not accepted them.
        unsent: usize,
    },
    /// FIN from the server after the sent bytes.
    ShutDown(ConnectionId),
    /// A transport is to be closed; [`TransportEvent::Closed`] follows.
    Closing(ConnectionId),
    /// A hook request for the back end.
    Asked(HookRequest),
    /// A transport to another server is being opened.
    Dialed(ConnectionId, SocketAddr),
    /// A listener starts or stops accepting connections.
    Accepts(u16, bool),
    /// The applications of the worker have stopped.
    Stopped,
    /// A batch for the log.
    Batch(LogBatch),
    /// Requests to the engine outside the process.
    Ordered(Vec<Order>),
    /// Messages to another worker, in order.
    Posted(usize, Vec<WorldMessage>),
    /// This worker has processed this many data messages of that other worker.
    Finished(usize, u32),
}

/// One worker with its transports and its ends of lanes.
///
/// In each [`accept`](Self::accept), [`arrive`](Self::arrive) and [`turn`](Self::turn), transports report their events
/// once: new connections, then sent buffers, then timers in the order of their deadlines, then one input or end per
/// transport. Events of equal rank are ordered by the index of the transport.
pub trait WorkerDriver {
    /// Returns the state shared by the connections of the worker.
    fn shared(&self) -> &Context;

    /// Returns the worker's shared state mutably. The simulated back end uses it to query the hub between turns.
    fn shared_mut(&mut self) -> &mut Context;

    /// Returns the number of connections.
    fn connections(&self) -> usize;

    /// Returns the non-empty queues and counters of the worker ([`Worker::pending_work`](veche_worker::Worker::pending_work)).
    fn pending_work(&self) -> Vec<(&'static str, u64)>;

    /// Calls the application that acts as back end.
    fn with_back_end(&mut self, call: &mut dyn FnMut(&mut BackEndApp, &mut Context));

    /// A peer connects to a listener through a transport that accepts `room` bytes.
    fn accept(
        &mut self,
        listener: u16,
        room: usize,
        now: Now,
        out: &mut Vec<WorkerOutput>,
    ) -> ConnectionId;

    /// Passes an input of a transport to the worker.
    fn arrive(
        &mut self,
        id: ConnectionId,
        arrival: TransportInput,
        now: Now,
        out: &mut Vec<WorkerOutput>,
    );

    /// Returns whether a transport is open and receives.
    fn receives(&self, id: ConnectionId) -> bool;

    /// Runs one turn; returns when the next one has to begin.
    fn turn(&mut self, turn: TurnInput, out: &mut Vec<WorkerOutput>) -> TurnState;
}

impl WorkerOutput {
    /// Returns whether the output has left the worker, for a peer or for another worker.
    pub(crate) fn leaves(&self) -> bool {
        matches!(
            self,
            Self::Sent { .. }
                | Self::ShutDown(_)
                | Self::Closing(_)
                | Self::Posted(..)
                | Self::Finished(..)
        )
    }

    /// Adds the output to the trace.
    pub(crate) fn note(&self, trace: &mut Trace) {
        let id = |id: &ConnectionId| u64::from(id.index) << 32 | u64::from(id.generation);
        match self {
            Self::Waits(within) => trace.note(&[1, within.map_or(u64::MAX, |ms| ms)]),
            Self::Event(of, event) => {
                let (kind, count) = match event {
                    TransportEvent::Accepted => (1, 0),
                    TransportEvent::Received(count) => (2, *count as u64),
                    TransportEvent::Ended => (3, 0),
                    TransportEvent::Sent => (4, 0),
                    TransportEvent::Progressed => (5, 0),
                    TransportEvent::Drained => (6, 0),
                    TransportEvent::Timer => (7, 0),
                    TransportEvent::Closed { is_reset } => (8, u64::from(*is_reset)),
                    TransportEvent::Connected => (9, 0),
                };
                trace.note(&[2, id(of), kind, count]);
            }
            Self::Paused(of) => trace.note(&[3, id(of)]),
            Self::Resumed(of) => trace.note(&[4, id(of)]),
            Self::TimerSet(of, due_ms) => trace.note(&[5, id(of), *due_ms]),
            Self::Sent {
                id: of,
                bytes,
                unsent,
            } => {
                trace.note(&[6, id(of), bytes.len() as u64, *unsent as u64]);
                trace.note_bytes(bytes);
            }
            Self::ShutDown(of) => trace.note(&[7, id(of)]),
            Self::Closing(of) => trace.note(&[8, id(of)]),
            Self::Asked(request) => trace.note_debug(9, request),
            Self::Dialed(of, to) => trace.note_debug(17, &(of, to)),
            Self::Accepts(listener, is) => trace.note(&[18, (*listener).into(), (*is).into()]),
            Self::Stopped => trace.note(&[19]),
            Self::Batch(batch) => trace.note_debug(10, batch),
            Self::Ordered(orders) => trace.note_debug(20, orders),
            Self::Posted(to, messages) => {
                trace.note(&[11, *to as u64, messages.len() as u64]);
                for message in messages {
                    match message {
                        WorkerMessage::Hub(mail) => trace.note_debug(12, mail),
                        WorkerMessage::App(never) => match *never {},
                        WorkerMessage::Relay(relay) => trace.note_debug(13, relay),
                        WorkerMessage::ListConnections(list_request) => {
                            trace.note_debug(14, list_request)
                        }
                        // A world is a single node, so workers send no messages for other nodes.
                        WorkerMessage::RelayTo(..) | WorkerMessage::Block(_) => {}
                    }
                }
            }
            Self::Finished(of, count) => trace.note(&[15, *of as u64, u64::from(*count)]),
        }
        trace.count_output(self);
    }
}
