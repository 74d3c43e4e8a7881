//! The contract's serialised form, for handlers that run in processes of their own: `docs/reference/runtime-protocol.md` is its specification.
//!
//! A stream of [frames](Frame) each way. Bytes come in by [`Decoder`], what a worker's frames mean by [`FromWorker`], and a
//! [`EffectBuilder`] makes [effects](crate::Effects) of it; [`OutgoingEvent`] makes a frame's head of an [event](crate::Event), and
//! [`encode`] writes it. Nothing here does I/O, and nothing that a worker sends panics.

mod effect_builder;
mod frame;
mod from_worker;
mod head;
mod hello;
mod part;
mod to_worker;

pub use effect_builder::{CallBridge, EffectBuilder, EffectsFull, EventOrigin};
pub use frame::{Decoder, Frame, FrameError, FrameTooLong, Limits, PREFIX_BYTES, encode};
pub use from_worker::{
    CALLS, CallRequest, EFFECTS, ErrorScope, FromWorker, HandlerEnd, HandlerOutput, MalformedFrame,
    WorkerCall, WorkerEffect,
};
pub use head::*;
pub use hello::AppDescription;
pub use to_worker::{EventConnection, OutgoingEvent, ToWorker, part};

/// The version of the protocol that this code speaks.
pub const VERSION: u32 = 1;

/// The codec of heads that every worker has.
pub const CODEC: &str = "json";
