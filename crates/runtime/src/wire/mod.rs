//! The serialised form of the contract, for handlers in separate processes; `docs/reference/runtime-protocol.md` is its
//! specification.
//!
//! A stream of [frames](Frame) in each direction. [`Decoder`] splits the received bytes into frames, [`FromWorker`]
//! parses a worker's frames, and [`Carrier`] converts them to [effects](crate::Effects); [`Outgoing`] makes
//! the head of a frame from an [event](crate::Event), and [`encode`] writes it. Nothing here does I/O, and no input
//! from a worker causes a panic.

mod carry;
mod frame;
mod from_worker;
mod head;
mod hello;
mod outside;
mod part;
mod to_worker;
mod values;

pub use carry::{Carrier, Desk, NoRoom, Origin};
pub use frame::{Decoder, Frame, FrameError, Limits, PREFIX_BYTES, TooLong, encode};
pub use from_worker::{
    CALLS, EFFECTS, End, FromWorker, Handled, Malformed, Scope, What, WorkerCall, WorkerEffect,
};
pub use head::*;
pub use hello::Offer;
pub use outside::{Outside, Pools};
pub use to_worker::{Known, Outgoing, ToWorker, part};

/// The version of the protocol that this code implements.
pub const VERSION: u32 = 1;

/// The codec of heads that every worker supports.
pub const CODEC: &str = "json";
