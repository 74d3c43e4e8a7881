//! Handlers that run in other processes, behind the contract of [`veche_runtime`].
//!
//! [`PerEvent`] handles each event by a separate request, such as one of FastCGI: it makes the event's frame, leaves the
//! request among its effects as any outgoing call, and converts the returned frames to effects. It keeps what outlives
//! a request: users and attributes of connections, and the order of their events.
//!
//! It knows no socket, no clock, no hub and no language.

#![forbid(unsafe_code)]

mod connections;
mod per_event;
mod program;

pub use per_event::PerEvent;
pub use program::Program;
