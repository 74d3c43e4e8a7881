//! Orders to an engine outside this process, and the events that the engine sends back, as plain data.
//!
//! Two parts of a server use an engine: each worker's hub, which is the home of channels
//! ([`channel`]), and the node, which exchanges messages with other nodes ([`peer`]). Each has its
//! own port to the carrier, which is the component that owns the connections to the store. The
//! orders of a port are executed in sequence. The carrier answers each order that has a ticket
//! exactly once, unless it loses the connection and sends [`Down`](channel::Event::Down). In that
//! case, unanswered orders get no answer, and may or may not have been executed.

pub mod channel;
pub mod peer;

/// The state of the store when a connection was opened, compared with the previous connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// The store is unchanged.
    Same,
    /// The store was restarted and may have lost writes, so positions must be compared before
    /// anything is published.
    Restarted,
    /// The store has lost an unknown number of writes, so its channels begin new epochs.
    Promoted,
}
