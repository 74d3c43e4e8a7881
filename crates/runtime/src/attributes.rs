//! Attributes of a connection: plain values that are kept when the code of the application is replaced.

use std::collections::BTreeMap;

/// The maximum number of attributes of one connection.
const ATTRIBUTES_MAX: usize = 64;

/// The maximum total size of a connection's attributes in bytes, including their names.
pub const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// Either `true` or `false`.
    Boolean(bool),
    /// A number: 64-bit floating point.
    Number(f64),
    /// Text or arbitrary bytes.
    Bytes(Box<[u8]>),
}

impl Attribute {
    fn len(&self) -> usize {
        match self {
            Self::Boolean(_) | Self::Number(_) => 8,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// The attributes of one connection, ordered by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    values: BTreeMap<Box<str>, Attribute>,
    bytes: usize,
}

/// Why an attribute can't be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// The connection is closed.
    #[error("the connection is closed")]
    Closed,
    /// The connection already has the maximum number of attributes.
    #[error("a connection may have at most {ATTRIBUTES_MAX} attributes")]
    TooMany,
    /// The attributes of the connection would exceed [`ATTRIBUTE_BYTES_MAX`].
    #[error("a connection's attributes may have at most {ATTRIBUTE_BYTES_MAX} bytes")]
    TooLarge,
}

impl Attributes {
    /// Returns the value of an attribute.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.values.get(name)
    }

    /// Returns all names and values, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attribute)> {
        self.values.iter().map(|(name, value)| (&**name, value))
    }

    /// Sets an attribute; `None` removes it.
    ///
    /// # Errors
    /// A limit on attributes would be exceeded. Nothing is changed.
    pub fn set(&mut self, name: &str, value: Option<Attribute>) -> Result<(), AttributeError> {
        let before = self.values.get(name);
        let before_bytes = before.map_or(0, |value| name.len() + value.len());
        let Some(value) = value else {
            self.values.remove(name);
            self.bytes -= before_bytes;
            return Ok(());
        };
        if before.is_none() && self.values.len() >= ATTRIBUTES_MAX {
            return Err(AttributeError::TooMany);
        }
        let bytes = self.bytes - before_bytes + name.len() + value.len();
        if bytes > ATTRIBUTE_BYTES_MAX {
            return Err(AttributeError::TooLarge);
        }
        self.bytes = bytes;
        self.values.insert(name.into(), value);
        Ok(())
    }
}
