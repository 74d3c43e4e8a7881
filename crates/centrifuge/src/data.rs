//! Application data, and its form in JSON and Protobuf.

use crate::depth;

/// Maximum nesting depth of JSON data, because parsers of receiving clients fail on deeper data. `[]` has depth 1.
pub const DEPTH_MAX: usize = 128;

/// Application data, which the protocol does not interpret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicationData<'a> {
    /// One JSON value, which is not validated again: invalid JSON breaks the client's whole message. JSON clients get
    /// the value unchanged, except that line breaks between its tokens are removed. An empty text means that there is
    /// no data.
    Json(&'a str),
    /// Any text. JSON clients get a JSON string.
    Text(&'a str),
    /// Any bytes. JSON clients get a JSON string with their base64 form.
    Binary(&'a [u8]),
}

impl<'a> PublicationData<'a> {
    /// Detects the kind of data that has no type, such as data from Protobuf clients: JSON if the bytes are one JSON
    /// value that is nested no deeper than [`DEPTH_MAX`], otherwise binary.
    #[must_use]
    pub fn of_bytes(bytes: &'a [u8]) -> Self {
        match simdutf8::basic::from_utf8(bytes) {
            Ok(text) if is_json(text) => Self::Json(text),
            _ => Self::Binary(bytes),
        }
    }

    /// Returns the bytes that Protobuf clients get.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Json(text) | Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

/// Returns whether a text is one JSON value that can be sent to clients: nested no deeper than [`DEPTH_MAX`].
#[must_use]
pub fn is_json(text: &str) -> bool {
    !depth::is_over(text, DEPTH_MAX) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// The form of a publication's data. Only subscribers that agreed on deltas (in Fossil's format)
/// with the server get a form other than `Off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DeltaKind {
    /// Without deltas: the data is sent unchanged.
    #[default]
    Off,
    /// With deltas: the whole data. JSON clients get a JSON string that contains the data's JSON
    /// form.
    Whole,
    /// With deltas: a delta from the previous data ([`fossil_delta`](crate::fossil_delta)), as text, or as binary data
    /// for Protobuf clients. The delta leads from the previous to the new data in the form in which the client receives
    /// them: JSON unchanged, text as a JSON string. JSON clients get no delta from or to binary data.
    Patch,
}
