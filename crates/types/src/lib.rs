//! Identifiers and plain values that several crates share, and suggestions for misspelt names. Nothing here does I/O or
//! depends on another crate of the workspace.

#![forbid(unsafe_code)]

pub mod codes;

mod id;
mod message;
mod network;
mod payload;
mod position;
mod publish;
mod spelling;
mod subscribe;
mod time;

pub use id::{AppId, ConnectionId, WorkerId};
pub use message::MessageKind;
pub use network::network;
pub use payload::{Payload, PayloadKind, PayloadRef};
pub use position::{Epoch, Position, PositionError, Since};
pub use publish::{PublicationInfo, PublishOptions, Version};
pub use spelling::nearest;
pub use subscribe::{ClientInfo, SubscribeOptions};
pub use time::Now;
