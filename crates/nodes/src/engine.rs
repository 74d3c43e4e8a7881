//! Orders to an engine outside this process and the events that it sends back, as plain data.
//!
//! An engine has two kinds of clients: the home of channels on each worker ([`channel`]), and the node itself for its
//! messages to other nodes ([`peer`]). Each has its own port to the carrier, which owns the connections. Orders of one
//! port are executed in sequence. A carrier answers each order with a ticket once, unless it sends
//! [`Down`](channel::Event::Down) first: then unanswered orders may or may not have been executed, and no answer to
//! them follows.

pub mod channel;
pub mod peer;

/// The state of the store after a new connection, compared with the recorded state of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// The store is unchanged.
    Same,
    /// The store was restarted and may have lost writes: positions must be compared before anything is published.
    Restarted,
    /// The store has lost an unknown number of writes: its channels begin new epochs.
    Promoted,
}
