//! The contract between Veche and the handlers of applications, in any language: events go in, effects come out.
//!
//! Plain data without a runtime: [`Runtime`] is the interface of one, Lua's in `veche-script` is the first, and the
//! server executes the effects. [`wire`] has the same data in serialised form, for handlers in separate processes. This
//! crate knows no socket, hub, clock or language.
//!
//! Some things are left to each runtime: its modules and libraries (Lua's tables, queues and dictionaries are functions
//! of a VM, not effects), how a handler waits, and where attributes of connections are stored ([`Attributes`] enforces
//! their limits). Every wait of a handler is an effect with a [`Token`], in any runtime: the answer is returned with
//! that token, once.

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

/// The error message of a call whose connection has closed.
pub const CLOSED: &str = "the connection is closed";

/// The error message of a call whose client no longer waits for the response.
pub const GONE: &str = "the client is gone";

/// The error message of a call in a handler that exceeded its time limit.
pub const TOO_LATE: &str = "the request took longer than request_timeout";
