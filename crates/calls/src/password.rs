//! Passwords: hashing one, and comparing one with a hash. No other server is asked; both take memory and time.

use std::fmt;

/// Longest password, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 4096;

/// Work with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordCall {
    /// The password, at most [`PASSWORD_BYTES_MAX`] bytes.
    pub password: Vec<u8>,
    /// What is done with it.
    pub action: PasswordAction,
}

/// What is done with a password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordAction {
    /// A new hash; answered by [`PasswordReply::Hash`].
    Hash,
    /// A comparison; answered by [`PasswordReply::IsRight`].
    Verify {
        /// A PHC string. Without one the same work is done and the password is wrong, so that the time does not tell
        /// which users there are.
        hash: Option<String>,
    },
}

/// Neither a password nor a hash gets into a log.
impl fmt::Debug for PasswordCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.action {
            PasswordAction::Hash => "Password(hash)",
            PasswordAction::Verify { .. } => "Password(verify)",
        })
    }
}

/// What has come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordReply {
    /// A PHC string.
    Hash(String),
    /// Whether the password belongs to the hash.
    IsRight(bool),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_form_has_neither_password_nor_hash() {
        for action in [
            PasswordAction::Hash,
            PasswordAction::Verify {
                hash: Some("$argon2id$secret".to_owned()),
            },
        ] {
            let call = PasswordCall {
                password: b"correct horse".to_vec(),
                action,
            };
            let text = format!("{call:?}");
            assert!(
                !text.contains("horse") && !text.contains("secret"),
                "{text}"
            );
        }
    }
}
