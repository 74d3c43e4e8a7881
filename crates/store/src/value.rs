//! What can be kept under a key.

use std::fmt;
use std::sync::Arc;

/// A value. A copy shares its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// True or false.
    Boolean(bool),
    /// A number, NaN included.
    Number(f64),
    /// Any bytes.
    Bytes(Arc<[u8]>),
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// True or false.
    Boolean,
    /// A number.
    Number,
    /// Bytes.
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
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::Boolean(_) => ValueKind::Boolean,
            Self::Number(_) => ValueKind::Number,
            Self::Bytes(_) => ValueKind::Bytes,
        }
    }

    /// Bytes that it has beside its fixed part.
    pub(crate) fn extra_bytes(&self) -> usize {
        match self {
            Self::Boolean(_) | Self::Number(_) => 0,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}
