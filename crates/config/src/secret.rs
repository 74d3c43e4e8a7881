//! Secrets of the configuration, and where they are kept.

use std::fmt;
use std::path::PathBuf;

/// Where a secret is, as the file says.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In the configuration itself.
    Here(SecretValue),
    /// In a file of its own: all of its text but a newline at the end.
    File(PathBuf),
    /// In a variable of the supervisor's environment.
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

/// A value that must not be seen in logs or output.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// Keeps `text` out of sight.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for comparing only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"****\"")
    }
}
