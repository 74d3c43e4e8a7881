//! What can go wrong, in words for whoever called.

use crate::value::Kind;

/// Why an operation was not carried out; nothing has changed then.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A name is empty or too long.
    #[error("a name has 1 to 255 bytes")]
    Name,
    /// There are as many as there may be.
    #[error("there are {most} already")]
    TooMany {
        /// How many.
        most: usize,
    },
    /// It came to be with other options.
    #[error("it exists with a limit of {bytes_max} bytes")]
    Options {
        /// Its limit.
        bytes_max: usize,
    },
    /// A key is too long.
    #[error("a key has at most 1024 bytes")]
    Key,
    /// There is no room within the limit. Nothing is thrown out for it.
    #[error("it is full: {needed} bytes more would exceed its limit of {bytes_max}")]
    Full {
        /// What would have been added.
        needed: usize,
        /// Its limit.
        bytes_max: usize,
    },
    /// What is to be increased is no number.
    #[error("the value is a {0}, not a number")]
    NotANumber(Kind),
    /// The sum would be infinite, or none.
    #[error("the result is not a finite number")]
    NotFinite,
    /// The sum of whole numbers is one that may not be exact.
    #[error("the sum is beyond 2^53, where integers are not exact")]
    NotExact,
}
