//! Values of dictionaries and queues.

use std::fmt;
use std::sync::Arc;

/// A value; a clone shares its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A boolean.
    Boolean(bool),
    /// A number, including NaN.
    Number(f64),
    /// Arbitrary bytes.
    Bytes(Arc<[u8]>),
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A boolean.
    Boolean,
    /// A number.
    Number,
    /// Arbitrary bytes.
    Bytes,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::Bytes => "string",
        })
    }
}

impl Value {
    /// Returns the type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Boolean(_) => Kind::Boolean,
            Self::Number(_) => Kind::Number,
            Self::Bytes(_) => Kind::Bytes,
        }
    }

    /// Returns the bytes beyond its fixed part.
    pub(crate) fn extra_bytes(&self) -> usize {
        match self {
            Self::Boolean(_) | Self::Number(_) => 0,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}
