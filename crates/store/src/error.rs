//! Errors of dictionaries, counters and queues.

use crate::value::ValueKind;

/// Why an operation failed. A failed operation has changed nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A name is empty or too long.
    #[error("a name must have 1 to 255 bytes")]
    Name,
    /// The maximum number of dictionaries, queues or counters is reached.
    #[error("the limit of {most} {what} is reached")]
    TooMany {
        /// The kind of objects that are too many, as a plural noun.
        what: &'static str,
        /// The maximum number of objects of the kind `what`.
        most: usize,
    },
    /// The dictionary exists with other options.
    #[error("the dict already exists with a limit of {bytes_max} bytes")]
    Options {
        /// The memory limit of the existing dictionary in bytes.
        bytes_max: usize,
    },
    /// A key is too long.
    #[error("a key may have at most 1024 bytes")]
    Key,
    /// The memory limit of a dictionary leaves no room. Entries are never evicted to make room.
    #[error("the dict is full: {needed} bytes more would exceed its limit of {bytes_max}")]
    Full {
        /// The additional bytes needed.
        needed: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// The value to increment is not a number.
    #[error("the value is a {0}, not a number")]
    NotANumber(ValueKind),
    /// The sum would be infinite or NaN.
    #[error("the result is not a finite number")]
    NotFinite,
    /// The sum of integers might not be exact.
    #[error("the sum exceeds 2^53, beyond which integers are not exact")]
    NotExact,
}
