//! Orders to an engine outside this process and the events that it sends back, as plain data.
//!
//! Two sorts of clients use an engine: the home of channels on each worker ([`channel`]), and the node itself for its
//! messages to other nodes ([`peer`]). Each has a port of its own to the carrier, which holds the connections. Orders of one
//! port are carried out in the sequence in which they were given. A carrier answers each order that has a ticket once, unless
//! it says [`Down`](channel::Event::Down) in between: then orders without an answer may have been carried out or not, and no
//! answer to them follows.

pub mod channel;
pub mod peer;

/// The state of the store behind a new connection, compared with what the cluster has recorded of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The store is the one that the cluster knows.
    Same,
    /// The store was started again and may have lost writes: positions have to be compared before anything is published.
    Restarted,
    /// The store has lost an unknown number of writes: its channels begin new epochs.
    Promoted,
}
