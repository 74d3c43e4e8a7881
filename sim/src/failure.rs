//! Failures of a world.

use std::fmt;

/// A broken promise, or a panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name of the promise, always in the same words; for a panic, its location.
    pub name: String,
    /// What was observed, for the report; for a panic, its message.
    pub detail: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.detail)
    }
}

impl Failure {
    /// Appends a text to the details.
    pub(crate) fn of(mut self, what: &str) -> Self {
        self.detail = format!("{}: {what}", self.detail);
        self
    }
}

pub(crate) type PromiseResult = Result<(), Failure>;

/// Ends the function with a [`Failure`] of this name unless the condition holds.
macro_rules! promise {
    ($holds:expr, $name:literal, $($detail:tt)+) => {
        if !$holds {
            return Err($crate::failure::Failure {
                name: $name.to_owned(),
                detail: format!($($detail)+),
            });
        }
    };
}

pub(crate) use promise;
