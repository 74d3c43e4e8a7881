//! Users and tokens that are not let in, by the word of the back end.

use serde::{Deserialize, Serialize};

/// What the back end says of users and tokens. Each holds until it is taken back, or until its time, in seconds since
/// 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// The user is not let in.
    User {
        /// Whom.
        user: String,
        /// Until then; `None`: until he is let in again.
        until_s: Option<u64>,
    },
    /// He is let in again.
    #[serde(rename = "user_allowed")]
    UserNoMore {
        /// Whom.
        user: String,
    },
    /// A token does not hold.
    Token {
        /// Its `jti` (RFC 7519, section 4.1.7).
        id: String,
        /// Until then; `None`: for ever.
        until_s: Option<u64>,
    },
    /// Tokens of a user do not hold.
    TokensOf {
        /// Whose.
        user: String,
        /// Those that were issued before, by `iat` (RFC 7519, section 4.1.6), and those that don't say when.
        issued_before_s: u64,
        /// Until then; `None`: for ever.
        until_s: Option<u64>,
    },
}

/// Why a block is not taken, or not for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum NotBlocked {
    /// There are as many as there may be.
    #[error("too many users and tokens are blocked")]
    TooMany,
    /// It is in force, and could not be written down: the next process may not know it.
    #[error("it holds until the server process ends, since it can't be written down: {0}")]
    NotWritten(String),
}
