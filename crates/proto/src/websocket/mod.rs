//! WebSocket: RFC 6455 and permessage-deflate of RFC 7692, both roles.
//!
//! Received bytes go into a [`Decoder`], which yields whole messages and control frames; output is appended to a
//! `Vec<u8>` by [`encode_message`], [`encode_control`], [`encode_close`] or an [`Encoder`], which compresses.
//! [`handshake`] reads and writes the HTTP side of the upgrade, [`deflate`] negotiates compression.
//!
//! Sockets, clocks, sessions and default limits are outside; `veche-frontends` decides when to answer a ping, how long
//! to wait for a close and what to do with a message.

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

/// Our end of the connection. A server receives masked frames and sends unmasked ones, a client the reverse (RFC 6455
/// section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that accepted the connection.
    Server,
    /// The end that opened the connection.
    Client,
}

/// Messages up to this length may be inflated from any number of bytes. Repetitive JSON compresses as well as an attack
/// does, and a message of this length costs about a millisecond. This time is charged as [work](Codecs::take_work).
pub const INFLATE_FREE_BYTES: usize = 1 << 20;

/// Limits on a peer's messages. Exceeding one ends the connection with 1009.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Maximum number of bytes of one inflated message, over all its fragments.
    pub message_bytes_max: usize,
    /// Maximum number of frames of one message, including empty ones, which cost work as well.
    pub fragments_max: u32,
    /// Maximum compression ratio of messages that inflate to more than [`INFLATE_FREE_BYTES`]; 0: limited by
    /// `message_bytes_max` only. DEFLATE itself reaches at most about 1,030.
    pub inflate_ratio_max: u32,
}

impl MessageLimits {
    /// Returns the maximum inflated length of a message with this compressed length.
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
