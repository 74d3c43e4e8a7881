//! Secrets of the configuration and their sources.

use std::fmt;
use std::path::PathBuf;

/// The source of a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// The secret is written in the configuration itself.
    Here(SecretValue),
    /// A separate file; a newline at its end is ignored.
    File(PathBuf),
    /// A variable of the supervisor's environment.
    Variable(String),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(secret) => secret.fmt(f),
            Self::File(path) => write!(f, "{{ file = {path:?} }}"),
            Self::Variable(name) => write!(f, "{{ env = {name:?} }}"),
        }
    }
}

/// A value that must not appear in logs or output.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// Wraps a secret, which `Debug` then hides.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the secret itself, which must not be logged or displayed.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"****\"")
    }
}
