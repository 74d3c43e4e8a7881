//! WebSocket: RFC 6455 and permessage-deflate of RFC 7692, both roles.
//!
//! Received bytes go into a [`Decoder`], which yields whole messages and control frames; what is to be sent is
//! appended to a `Vec<u8>` by [`encode_message`], [`encode_control`], [`encode_close`] or an [`Encoder`], which
//! compresses. [`handshake`] reads and writes the HTTP side of the upgrade, [`deflate`] negotiates compression.
//!
//! Nothing here knows a socket, a clock, a session or a limit's default. When to answer a ping, how long to wait for a
//! close and what to do with a message is decided in `veche-frontends`.

mod close;
mod codecs;
mod context;
mod decoder;
pub mod deflate;
mod encoder;
mod error;
mod extensions;
mod frame;
pub mod handshake;
mod mask;
mod partial;
mod utf8;

pub use codecs::Codecs;
pub use context::DeflateBudget;
pub use decoder::{Decoder, FrameEvent};
pub use encoder::{Encoder, FragmentFlags, encode_close, encode_control, encode_message};
pub use error::ProtocolError;
pub use frame::{HEADER_BYTES_MAX, Opcode};
pub use veche_types::MessageKind;

/// Which end of the connection we are. A server receives masked frames and sends plain ones, a client the reverse
/// (RFC 6455 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that accepted the connection.
    Server,
    /// The end that opened the connection.
    Client,
}

/// Up to this length a message may be inflated from any number of bytes. Repetitive JSON shrinks as far as an attack does,
/// and a message of this length costs about a millisecond, which is charged as [work](Codecs::take_work).
pub const INFLATE_FREE_BYTES: usize = 1 << 20;

/// What a peer may make us hold. Crossing one of them ends the connection with 1009.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Bytes of one message, inflated, over all its fragments.
    pub message_bytes_max: usize,
    /// Frames of one message; empty ones count, since each costs us work.
    pub fragments_max: u32,
    /// How many times as long as it came a compressed message may become, where it becomes longer than
    /// [`INFLATE_FREE_BYTES`]; 0: as long as `message_bytes_max` lets it. DEFLATE itself ends at about 1,030 times.
    pub inflate_ratio_max: u32,
}

impl MessageLimits {
    /// How long a message may become that came as so many compressed bytes.
    fn inflated_bytes_max(&self, compressed_bytes: usize) -> usize {
        if self.inflate_ratio_max == 0 {
            return self.message_bytes_max;
        }
        compressed_bytes
            .saturating_mul(self.inflate_ratio_max as usize)
            .max(INFLATE_FREE_BYTES)
            .min(self.message_bytes_max)
    }
}
