//! An application's data, and how they look in both encodings.

use crate::depth;

/// How deep data may be nested: a client would pass on to others what they can't read. `[]` is 1.
pub const DEPTH_MAX: usize = 128;

/// An application's data, which the protocol carries and does not look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicationData<'a> {
    /// One JSON value. Written to JSON clients as it stands, without line breaks between its tokens; it is not checked
    /// again, so what is no JSON here breaks the client's whole message. Empty means that there are none.
    Json(&'a str),
    /// Any text. JSON clients get a JSON string.
    Text(&'a str),
    /// Any bytes. JSON clients get a JSON string with their base64 form.
    Binary(&'a [u8]),
}

impl<'a> PublicationData<'a> {
    /// What bytes are that come without a type, as from Protobuf clients: JSON if they are one value of it, nested no deeper than
    /// [`DEPTH_MAX`], and else binary.
    #[must_use]
    pub fn of_bytes(bytes: &'a [u8]) -> Self {
        match simdutf8::basic::from_utf8(bytes) {
            Ok(text) if is_json(text) => Self::Json(text),
            _ => Self::Binary(bytes),
        }
    }

    /// The bytes, as Protobuf clients get them.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Json(text) | Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

/// Whether a text is one JSON value that can be sent to clients: nested no deeper than [`DEPTH_MAX`].
#[must_use]
pub fn is_json(text: &str) -> bool {
    !depth::is_over(text, DEPTH_MAX) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// What the data of a publication are, where its subscriber and the server may have agreed on deltas (Fossil's format).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DeltaKind {
    /// Nothing was agreed on: data as they are.
    #[default]
    Off,
    /// Agreed on, and these are whole data. JSON clients get them as a JSON string that holds their JSON form.
    Whole,
    /// Agreed on, and these are a delta from the data before ([`fossil_delta`](crate::fossil_delta)), as [`PublicationData::Text`],
    /// or [`PublicationData::Binary`] for Protobuf clients. It is between whole data as clients have them: JSON as it stands, a text
    /// as JSON string. JSON clients take no delta from or to binary data.
    Patch,
}
