//! Bans of users and revocations of tokens, as back ends order them.

use serde::{Deserialize, Serialize};

/// An order of the back end about a user or a token. It is in force until it is revoked or expires; times are in seconds
/// since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Refuses connections of a user.
    User {
        /// The name of the user to refuse.
        user: String,
        /// When the ban expires; `None`: not before the user is allowed again.
        until_s: Option<u64>,
    },
    /// Allows a banned user to connect again.
    #[serde(rename = "user_allowed")]
    UserNoMore {
        /// The name of the user to allow.
        user: String,
    },
    /// Revokes a token.
    Token {
        /// Its `jti` (RFC 7519, section 4.1.7).
        id: String,
        /// When the revocation expires; `None`: never.
        until_s: Option<u64>,
    },
    /// Revokes tokens of a user.
    TokensOf {
        /// The name of the tokens' user.
        user: String,
        /// Those that were issued before, by `iat` (RFC 7519, section 4.1.6), and those that don't say when.
        issued_before_s: u64,
        /// When the revocation expires; `None`: never.
        until_s: Option<u64>,
    },
}

/// Why a block is not taken, or not for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum NotBlocked {
    /// There are as many as there may be.
    #[error("too many users and tokens are banned")]
    TooMany,
    /// It is in force, and could not be written down: the next process may not know it.
    #[error("it is in force, but could not be saved and ends with the server process: {0}")]
    NotWritten(String),
}
