//! Tickets: how requests are told apart, and where their answers go.

use veche_types::{ConnectionId, WorkerId};

/// Names a request of a session; the hub gives it back with the answer and does not
/// look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// A back end's call that waits until an instruction is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The worker of its connection.
    pub worker: WorkerId,
    /// Its connection.
    pub session: ConnectionId,
    /// Which of its calls.
    pub ticket: Ticket,
}
