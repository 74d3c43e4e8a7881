//! The contract between Veche and the handlers of applications, in any language: events go out, effects come back.
//!
//! Plain data, and no runtime: [`Runtime`] is what one has to do, Lua's in `veche-script` is the first, and the server
//! carries effects out. [`wire`] has the same as bytes, for handlers in processes of their own. This crate knows no
//! socket, no hub, no clock and no language.
//!
//! What differs between runtimes stays with them: their modules and libraries (Lua's tables, queues and dictionaries are
//! functions of a VM and no effects), how a handler waits, and where attributes of connections are kept
//! ([`Attributes`] counts them for each). What a handler waits for is an effect with a [`Token`], whichever runtime it
//! is of: the answer comes back by that token, once.

mod attributes;
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
    ByteSpan, Credential, Effect, Effects, HandshakeReply, Level, LogContext, MESSAGE_BYTES_MAX,
    PositionRequest, Token,
};
pub use event::{Event, EventKind};
pub use progress::{HandlerProgress, SlowHandler, WaitResult};
pub use publish_gate::PublishGate;
pub use request::Request;
pub use response::is_file_path;
pub use runtime::{Host, Replacement, Runtime, ServiceState};

/// The message of a call whose connection is gone.
pub const CLOSED: &str = "the connection is closed";

/// The message of a call whose client no longer waits for the answer.
pub const GONE: &str = "the client is gone";

/// The message of a call in a handler that took longer than it may.
pub const TOO_LATE: &str = "the request took longer than request_timeout";
