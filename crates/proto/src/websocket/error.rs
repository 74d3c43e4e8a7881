//! Protocol violations by a peer. Each ends its connection.

use veche_types::codes::CloseCode;

/// A violation by the peer. `Display` is suitable as the reason of a close frame (at most 123 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// RSV2 or RSV3 is set, or RSV1 without an extension that defines it (RFC 6455 section 5.2, RFC 7692 section 6).
    #[error("reserved bit set")]
    ReservedBit,
    /// Opcode 3 to 7 or 11 to 15.
    #[error("reserved opcode")]
    ReservedOpcode,
    /// A server received a frame without a mask (RFC 6455 section 5.1).
    #[error("frame from client not masked")]
    NotMasked,
    /// A client received a masked frame.
    #[error("frame from server masked")]
    Masked,
    /// A length not in its shortest form, or with its highest bit set (RFC 6455 section 5.2).
    #[error("malformed payload length")]
    MalformedLength,
    /// A ping, pong or close without FIN (RFC 6455 section 5.5).
    #[error("fragmented control frame")]
    ControlFragmented,
    /// A ping, pong or close with more than 125 bytes.
    #[error("control frame over 125 bytes")]
    ControlTooLong,
    /// A continuation frame without an open message.
    #[error("continuation without a message")]
    ContinuationUnexpected,
    /// A text or binary frame inside a fragmented message (RFC 6455 section 5.4).
    #[error("new message inside a fragmented one")]
    ContinuationExpected,
    /// A close frame with a body of one byte.
    #[error("close frame of one byte")]
    CloseTruncated,
    /// A close code that may not be sent (RFC 6455 section 7.4).
    #[error("invalid close code")]
    CloseCode,
    /// Text or a close reason that is not UTF-8 (RFC 6455 section 8.1).
    #[error("invalid UTF-8")]
    InvalidUtf8,
    /// Compressed data that is not a DEFLATE stream.
    #[error("corrupt compressed data")]
    CorruptDeflate,
    /// A compressed message with too many final DEFLATE blocks.
    #[error("too many final blocks in a message")]
    TooManyFinalBlocks,
    /// A message that is longer than permitted.
    #[error("message too big")]
    MessageTooBig,
    /// A message with more frames than permitted.
    #[error("too many fragments")]
    TooManyFragments,
    /// A message that inflates by more than the permitted ratio.
    #[error("message inflates too far")]
    InflatedTooFar,
}

impl ProtocolError {
    /// Returns the close code: 1002, 1007 or 1009.
    #[must_use]
    pub fn close_code(self) -> u16 {
        let code = match self {
            Self::ReservedBit
            | Self::ReservedOpcode
            | Self::NotMasked
            | Self::Masked
            | Self::MalformedLength
            | Self::ControlFragmented
            | Self::ControlTooLong
            | Self::ContinuationUnexpected
            | Self::ContinuationExpected
            | Self::CloseTruncated
            | Self::CloseCode => CloseCode::ProtocolError,
            Self::InvalidUtf8 | Self::CorruptDeflate | Self::TooManyFinalBlocks => {
                CloseCode::InvalidData
            }
            Self::MessageTooBig | Self::TooManyFragments | Self::InflatedTooFar => {
                CloseCode::TooBig
            }
        };
        code.code()
    }
}
