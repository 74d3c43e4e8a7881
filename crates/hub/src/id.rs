//! Tickets: how requests are told apart.

/// Names a request of a session; the hub gives it back with the [`Answer`](crate::Answer) and
/// does not look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);
