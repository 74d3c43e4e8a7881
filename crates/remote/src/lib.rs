//! Handlers that run in other processes, behind the contract of [`veche_runtime`].
//!
//! [`PerEvent`] handles each event by a separate request, such as a FastCGI request: it encodes the event as a frame, records
//! the request among its effects like any other outgoing call, and converts the frames of the response to effects. It stores
//! the state that outlives a request: users and attributes of connections, and the order of their events.
//!
//! The crate does no I/O, reads no clock, and does not depend on the hub or on the language of the handlers.

#![forbid(unsafe_code)]

mod connections;
mod per_event;
mod program;

pub use per_event::PerEvent;
pub use program::Program;
