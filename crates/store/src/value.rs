//! Values of dictionaries and queues.

use std::fmt;
use std::sync::Arc;

/// A value of a dictionary or queue. Clones share its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A value that is true or false.
    Boolean(bool),
    /// A number, including NaN.
    Number(f64),
    /// A string of arbitrary bytes.
    Bytes(Arc<[u8]>),
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// The type of [`Value::Boolean`].
    Boolean,
    /// The type of [`Value::Number`].
    Number,
    /// The type of [`Value::Bytes`].
    Bytes,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::Bytes => "string",
        })
    }
}

impl Value {
    /// Returns the type of the value.
    #[must_use]
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::Boolean(_) => ValueKind::Boolean,
            Self::Number(_) => ValueKind::Number,
            Self::Bytes(_) => ValueKind::Bytes,
        }
    }

    /// Returns the memory in bytes that the value uses in addition to its fixed size.
    pub(crate) fn extra_bytes(&self) -> usize {
        match self {
            Self::Boolean(_) | Self::Number(_) => 0,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}
