//! The contract between Veche and the handlers of applications, in any language: events go in, effects come out.
//!
//! The crate contains plain data and the interface of a runtime, [`Runtime`]; `veche-script` implements it for Lua. The server
//! executes the effects. [`wire`] has the same data in serialised form, for handlers in separate processes. This crate does no
//! I/O, reads no clock, and does not depend on the hub or on a language.
//!
//! Each runtime defines its own modules and libraries (Lua's tables, queues and dictionaries are functions of a VM, not
//! effects), how a handler waits, and where attributes of connections are stored ([`Attributes`] enforces their limits). In
//! every runtime, each wait of a handler is an effect with a [`Token`], and its answer is delivered once, with the same token.

mod attributes;
pub mod call_errors;
mod channel_event;
pub mod close;
mod dial;
mod effects;
mod event;
pub mod hooks;
mod progress;
mod publish_gate;
mod request;
mod response;
mod runtime;
pub mod wire;

pub use attributes::{ATTRIBUTE_BYTES_MAX, Attribute, AttributeError, Attributes};
pub use channel_event::ChannelEventView;
pub use dial::Dial;
pub use effects::{
    ByteSpan, Credential, Effect, Effects, HandshakeReply, Level, LogContext, LogProcess,
    MESSAGE_BYTES_MAX, PositionRequest, Token,
};
pub use event::{Event, EventKind};
pub use progress::{HandlerProgress, SlowHandler, WaitResult};
pub use publish_gate::PublishGate;
pub use request::Request;
pub use response::is_file_path;
pub use runtime::{Host, Replacement, Runtime, ServiceState, WorkerWaker};

/// The error message of a call by a handler whose connection has closed.
pub const CLOSED: &str = "the connection is closed";

/// The error message of a call by a handler whose client no longer waits for the response.
pub const GONE: &str = "the client is gone";

/// The error message of a call by a handler whose request has exceeded its time limit.
pub const TOO_LATE: &str = "the request took longer than request_timeout";
