//! The serialised form of the contract, for handlers in separate processes; `docs/reference/runtime-protocol.md` is its
//! specification.
//!
//! The protocol is a stream of [frames](Frame) in each direction. [`FrameDecoder`] splits the received bytes into frames,
//! [`FromWorker`] parses a worker's frames, and [`EffectBuilder`] converts them to [effects](crate::Effects); [`OutgoingEvent`]
//! makes the head of a frame from an [event](crate::Event), and [`encode`] writes it. Nothing here does I/O, and no input from
//! a worker causes a panic.

mod effect_builder;
mod effect_names;
mod frame;
mod from_worker;
mod head;
mod hello;
mod hook_reply;
mod outside;
mod part;
mod quick;
mod to_worker;
mod values;

pub use effect_builder::{CallBridge, EffectBuilder, EffectsFull, EventOrigin};
pub use frame::{Frame, FrameDecoder, FrameError, FrameLimits, FrameTooLong, PREFIX_BYTES, encode};
pub use from_worker::{
    CALLS, CallRequest, EFFECTS, ErrorScope, FromWorker, HandlerEnd, HandlerOutput, MalformedFrame,
    WorkerCall, WorkerEffect,
};
pub use head::*;
pub use hello::{AppDescription, CODEC, HelloHead, RefuseHead, VERSION, WelcomeHead};
pub use outside::Outside;
pub use quick::{answer_id, encode_message};
pub use to_worker::{EventConnection, OutgoingEvent, ToWorker, part};
