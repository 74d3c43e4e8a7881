//! Hashing and verification of passwords. Both run in this process, and take memory and time.

use std::fmt;

/// The longest password in bytes.
pub const PASSWORD_BYTES_MAX: usize = 4096;

/// A call about a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordCall {
    /// The password, at most [`PASSWORD_BYTES_MAX`] bytes.
    pub password: Vec<u8>,
    /// The action to perform.
    pub action: PasswordAction,
}

/// The actions on a password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordAction {
    /// Creates a hash; answered by [`PasswordReply::Hash`].
    Hash,
    /// Verifies the password; answered by [`PasswordReply::IsRight`].
    Verify {
        /// The hash as a PHC string. With `None`, verification fails after the same time as with a hash, so that the time
        /// does not reveal which users exist.
        hash: Option<String>,
    },
}

/// Neither the password nor the hash may be logged.
impl fmt::Debug for PasswordCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.action {
            PasswordAction::Hash => "Password(hash)",
            PasswordAction::Verify { .. } => "Password(verify)",
        })
    }
}

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordReply {
    /// The hash as a PHC string.
    Hash(String),
    /// Whether the password matches the hash.
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
