//! Handlers that run in other processes, behind the contract of [`veche_runtime`].
//!
//! [`PerEvent`] has each event handled by a request of its own, for example by FastCGI: it encodes the event as a
//! frame, adds the request to its effects like any outgoing call, and converts the frames of the response to effects.
//! It stores the state that outlives a request: users and attributes of connections, and the order of their events.
//!
//! It knows no socket, no clock, no hub and no language.

#![forbid(unsafe_code)]

mod connections;
mod per_event;
mod program;

pub use per_event::PerEvent;
pub use program::Program;
