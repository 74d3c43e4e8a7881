//! Kinds of WebSocket messages.

/// The type of a WebSocket message (RFC 6455, section 5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A text message: valid UTF-8.
    Text,
    /// A binary message: arbitrary bytes.
    Binary,
}

impl MessageKind {
    /// Returns `text` or `binary`, as scripts spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Binary => "binary",
        }
    }
}
