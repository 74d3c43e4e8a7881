//! The seam between a world and whatever drives its workers: what a worker is given, and what comes out of it.
//!
//! A world knows workers by [`Glue`] alone. [`crate::worker`] is the simulator's own; the server's tests put the server's
//! glue behind it, on `veche_net::Simulated` and mailboxes. Both have to give out the same [`Output`]s in the same order
//! for the same calls, so everything that a world can see goes through here.
//!
//! To add an input, add a method or a field of [`Turn`]; to add an output, a variant of [`Output`] with its words in
//! [`Output::note`]. Then both implementations have to carry it.

use std::convert::Infallible;
use std::net::SocketAddr;

use veche_frontends::hooks::{Question, QuestionId, Verdict};
use veche_frontends::{Now, Parting, Shared};
use veche_hub::{Batch, ConnectionId};
use veche_worker::{TurnLimits, TurnState, WorkerMessage};

use crate::apps::BackEndApp;
use crate::trace::Trace;

/// What workers of a world send each other.
pub type Message = WorkerMessage<Infallible>;

/// The longest piece of a peer's bytes that arrives at once: what a driver receives into.
pub const RECEIVE_BYTES_MAX: usize = 64 << 10;

/// What all workers of a process begin with.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The time.
    pub now: Now,
    /// Counted work of a turn.
    pub limits: TurnLimits,
    /// Data between two workers that may be unfinished, as their hubs count it.
    pub credits: u32,
    /// Where a transport tells that its queue has drained.
    pub low_water_bytes: usize,
    /// What a transport to another server takes before that reads.
    pub room_bytes: usize,
    /// What channels remember goes into a log.
    pub is_logged: bool,
}

/// Brings up the workers of one process.
pub type Begin = fn(Vec<Shared>, &Conditions) -> Vec<Box<dyn Glue>>;

/// What a lane carries to a worker.
#[derive(Debug)]
pub enum Letter {
    /// A message of another worker.
    Message(Message),
    /// An order of the control side: all connections close within so many milliseconds, for that reason.
    Drain(u64, Parting),
}

/// What happens at a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Bytes of the peer, at most [`RECEIVE_BYTES_MAX`].
    Bytes(Vec<u8>),
    /// The peer's FIN.
    Fin,
    /// The peer is gone without a word.
    Reset,
    /// The transport takes so many bytes more.
    Room(usize),
    /// The other server is there: what was dialed is connected.
    TakenUp,
}

/// What a worker is given in a turn.
#[derive(Debug)]
pub struct Turn {
    /// The time.
    pub now: Now,
    /// By worker: data that was sent there and is not finished.
    pub unfinished: Vec<u32>,
    /// What arrives by each lane, by sender; the control side comes last.
    pub letters: Vec<Vec<Letter>>,
    /// The last batch of the log that is durable, if that is news.
    pub durable: Option<u64>,
    /// What was decided on questions.
    pub verdicts: Vec<(ConnectionId, QuestionId, Verdict)>,
}

/// What a transport tells its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A listener took it.
    Accepted,
    /// It was dialed, and is connected.
    Connected,
    /// So many bytes of the peer.
    Received(usize),
    /// The peer's FIN.
    Ended,
    /// A buffer has left.
    Sent,
    /// A part of one has.
    Progressed,
    /// The queue fell below its low water.
    Drained,
    /// The timer fired.
    Timer,
    /// It is over, because it was asked for or was reset.
    Closed {
        /// The peer reset it.
        is_reset: bool,
    },
}

/// What comes out of a worker and its transports, in order.
#[derive(Debug)]
pub enum Output {
    /// A turn begins, which could have waited so many milliseconds for an event; `None`: for ever.
    Waits(Option<u64>),
    /// A transport tells its worker something.
    Told(ConnectionId, Told),
    /// A transport is to receive nothing.
    Paused(ConnectionId),
    /// A transport is to receive again.
    Resumed(ConnectionId),
    /// The timer of a transport is set to this monotonic millisecond.
    TimerSet(ConnectionId, u64),
    /// A transport took bytes, and has so many left to take.
    Sent {
        /// Which.
        id: ConnectionId,
        /// What it took.
        bytes: Vec<u8>,
        /// What it was given and has not taken.
        unsent: usize,
    },
    /// The server's FIN, behind what was sent.
    ShutDown(ConnectionId),
    /// A transport is to be closed; [`Told::Closed`] follows.
    Closing(ConnectionId),
    /// The back end is to decide.
    Asked(Question),
    /// A transport to another server is being opened.
    Dialed(ConnectionId, SocketAddr),
    /// A listener is to take connections, or to stop to.
    Accepts(u16, bool),
    /// The applications of the worker have stopped.
    Stopped,
    /// A batch for the log.
    Batch(Batch),
    /// Messages to another worker, in order.
    Posted(usize, Vec<Message>),
    /// So much data of another worker is finished.
    Finished(usize, u32),
}

/// One worker with its transports and its ends of lanes.
///
/// Transports tell what they have to tell once in each [`accept`](Self::accept), [`arrive`](Self::arrive) and
/// [`turn`](Self::turn): connections that come in, then what leaves, then timers in the order of their deadlines, then
/// what arrives or ends, one thing a transport; where that is open, by the index of the transport.
pub trait Glue {
    /// What the connections of the worker share.
    fn shared(&self) -> &Shared;

    /// The same to be changed: the back end asks the hub of any worker between its turns.
    fn shared_mut(&mut self) -> &mut Shared;

    /// How many connections it has.
    fn connections(&self) -> usize;

    /// Calls its application.
    fn with_back_end(&mut self, call: &mut dyn FnMut(&mut BackEndApp, &mut Shared));

    /// A peer connects to a listener by a transport that takes so many bytes.
    fn accept(
        &mut self,
        listener: u16,
        room: usize,
        now: Now,
        out: &mut Vec<Output>,
    ) -> ConnectionId;

    /// Something happens at a transport, of which the worker is told.
    fn arrive(&mut self, id: ConnectionId, arrival: Arrival, now: Now, out: &mut Vec<Output>);

    /// Whether a transport is open and receives.
    fn receives(&self, id: ConnectionId) -> bool;

    /// One turn, and when the next one has to begin.
    fn turn(&mut self, turn: Turn, out: &mut Vec<Output>) -> TurnState;
}

impl Output {
    /// Whether something has left the worker, as it does only in a turn that has a reason.
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

    /// Notes all of it.
    pub(crate) fn note(&self, trace: &mut Trace) {
        let id = |id: &ConnectionId| u64::from(id.index) << 32 | u64::from(id.generation);
        match self {
            Self::Waits(within) => trace.note(&[1, within.map_or(u64::MAX, |ms| ms)]),
            Self::Told(of, told) => {
                let (kind, count) = match told {
                    Told::Accepted => (1, 0),
                    Told::Received(count) => (2, *count as u64),
                    Told::Ended => (3, 0),
                    Told::Sent => (4, 0),
                    Told::Progressed => (5, 0),
                    Told::Drained => (6, 0),
                    Told::Timer => (7, 0),
                    Told::Closed { is_reset } => (8, u64::from(*is_reset)),
                    Told::Connected => (9, 0),
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
            Self::Asked(question) => trace.note_debug(9, question),
            Self::Dialed(of, to) => trace.note_debug(17, &(of, to)),
            Self::Accepts(listener, is) => trace.note(&[18, (*listener).into(), (*is).into()]),
            Self::Stopped => trace.note(&[19]),
            Self::Batch(batch) => trace.note_debug(10, batch),
            Self::Posted(to, messages) => {
                trace.note(&[11, *to as u64, messages.len() as u64]);
                for message in messages {
                    match message {
                        WorkerMessage::Hub(mail) => trace.note_debug(12, mail),
                        WorkerMessage::App(never) => match *never {},
                        WorkerMessage::Relay(relay) => trace.note_debug(13, relay),
                        WorkerMessage::Census(census) => trace.note_debug(14, census),
                        // A world is one node.
                        WorkerMessage::RelayTo(..) | WorkerMessage::Block(_) => {}
                    }
                }
            }
            Self::Finished(of, count) => trace.note(&[15, *of as u64, u64::from(*count)]),
        }
        trace.say(self);
    }
}
