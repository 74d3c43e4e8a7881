//! The contract's serialised form, for handlers that run in processes of their own: `docs/reference/runtime-protocol.md` is its specification.
//!
//! A stream of [frames](Frame) each way. Bytes come in by [`Decoder`], what a worker's frames mean by [`FromWorker`], and a
//! [`Carrier`] makes [effects](crate::Effects) of it; [`Outgoing`] makes a frame's head of an [event](crate::Event), and
//! [`encode`] writes it. Nothing here does I/O, and nothing that a worker sends panics.

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

/// The version of the protocol that this code speaks.
pub const VERSION: u32 = 1;

/// The codec of heads that every worker has.
pub const CODEC: &str = "json";
