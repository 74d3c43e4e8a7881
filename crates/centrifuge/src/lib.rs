//! The wire format of Centrifugo's client protocol, version 2: decoding of commands, and encoding of replies and
//! pushes, as JSON and Protobuf.
//!
//! The crate is pure: it uses no socket, session or clock, and does not decide which commands are allowed. Input is
//! borrowed; input that is not a command is rejected with a [`MalformedMessage`] and never causes a panic. Output is
//! appended to a buffer, and nothing else is allocated for it.
//!
//! ```
//! use veche_centrifuge::{
//!     DecodeLimits, Encoding, Outcome, Publication, PublicationData, Push, PushBody, Reply, ClientRequest,
//!     SubscribeResult,
//! };
//!
//! let message = br#"{"id":2,"subscribe":{"channel":"chat:1"}}"#;
//! let command = Encoding::Json.commands(message, DecodeLimits::default()).next().unwrap()?;
//! assert!(matches!(command.request, ClientRequest::Subscribe(request) if request.channel == "chat:1"));
//!
//! let mut out = Vec::new();
//! let outcome = Outcome::Subscribe(SubscribeResult::default());
//! Encoding::Json.write_reply(&mut out, &Reply { id: command.id, outcome });
//! out.push(b'\n');
//! let publication = Publication { offset: 6, ..Publication::new(PublicationData::Json(r#"{"a":1}"#)) };
//! let body = PushBody::Publication(publication);
//! Encoding::Json.write_push(&mut out, &Push { channel: "chat:1", body });
//! assert_eq!(
//!     out,
//!     b"{\"id\":2,\"subscribe\":{}}\n\
//!       {\"push\":{\"channel\":\"chat:1\",\"pub\":{\"data\":{\"a\":1},\"offset\":6}}}"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! docs/decisions/13-protobuf.md explains why this crate reads and writes Protobuf itself.

mod data;
mod depth;
mod emulation;
mod filter;
mod fossil;
mod malformed;
mod publication;
mod push;
mod read;
mod reply;
mod request;
mod write;

pub use data::{DEPTH_MAX, DeltaKind, PublicationData, is_json};
pub use emulation::EmulationBody;
pub use filter::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX, FILTER_NODES_MAX, FilterError, TagsFilter};
pub use fossil::{DELTA_BYTES_MAX, fossil_delta};
pub use malformed::MalformedMessage;
pub use publication::{ClientInfo, Publication, StreamPosition};
pub use push::{Disconnect, Push, PushBody, Refresh, Subscribe, Unsubscribe};
pub use read::{Commands, DecodeLimits};
pub use reply::{
    CommandError, ConnectResult, HistoryResult, Outcome, PresenceResult, PresenceStatsResult,
    RefreshResult, Reply, RpcResult, SubRefreshResult, SubscribeResult,
};
pub use request::{
    ChannelRequest, ClientRequest, Command, ConnectRequest, ENTRIES_MAX, HistoryRequest,
    PublishRequest, RefreshRequest, RpcRequest, SecretText, SendRequest, ServerSub,
    SubRefreshRequest, SubscribeRequest,
};
pub use veche_types::codes::{DisconnectCode, ErrorCode, UnsubscribeCode};
pub use write::{Element, ReplyWriter};

/// The encoding of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// JSON: one object per line.
    Json,
    /// Protobuf: a sequence of length-prefixed messages.
    Protobuf,
}
