//! Orders to an engine outside this process, and the events that the engine sends back, as plain data.
//!
//! Two parts of a server use an engine: each worker's hub, as the home of channels ([`channel`]), and the node, for its
//! messages to other nodes ([`peer`]). Each has a port of its own to the carrier, which owns the connections to the
//! store. The orders of one port are executed in sequence. A carrier answers each order that has a ticket exactly once,
//! unless the connection is lost and it sends [`Down`](channel::Event::Down): then unanswered orders may or may not
//! have been executed, and they get no answer.

pub mod channel;
pub mod peer;

/// The state of the store when a connection was opened, compared with its state before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// The store is unchanged.
    Same,
    /// The store was restarted and may have lost writes: positions must be compared before anything is published.
    Restarted,
    /// The store has lost an unknown number of writes: its channels begin new epochs.
    Promoted,
}
