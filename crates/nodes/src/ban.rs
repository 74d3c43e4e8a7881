//! Bans of users and revocations of tokens, as ordered by back ends.

use serde::{Deserialize, Serialize};

/// A ban or revocation. It is in force until it is lifted or expires; times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ban {
    /// Refuses connections of a user.
    User {
        /// The name of the user to refuse.
        user: String,
        /// When the ban expires; `None`: not until the user is allowed again.
        until_s: Option<u64>,
    },
    /// Allows a banned user to connect again.
    #[serde(rename = "user_allowed")]
    UserAllowed {
        /// The name of the user to allow.
        user: String,
    },
    /// Revokes a single token.
    Token {
        /// The token's `jti` (RFC 7519, section 4.1.7).
        id: String,
        /// When the revocation expires; `None`: never.
        until_s: Option<u64>,
    },
    /// Revokes all tokens of a user.
    TokensOf {
        /// The user of the tokens.
        user: String,
        /// Applies to tokens issued before, by `iat` (RFC 7519, section 4.1.6), and to those without this claim.
        issued_before_s: u64,
        /// When the revocation expires; `None`: never.
        until_s: Option<u64>,
    },
}

impl Ban {
    /// Returns the time at which it expires; `None`: never.
    #[must_use]
    pub fn until_s(&self) -> Option<u64> {
        match self {
            Self::User { until_s, .. }
            | Self::Token { until_s, .. }
            | Self::TokensOf { until_s, .. } => *until_s,
            Self::UserAllowed { .. } => None,
        }
    }
}

/// Why a ban is not in force, or only temporarily.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum BanError {
    /// The limit of bans is reached.
    #[error("too many users and tokens are banned")]
    TooMany,
    /// The ban is in force, but could not be saved: the next process may not have it.
    #[error("the ban is in force, but could not be saved and ends with the server process: {0}")]
    NotWritten(String),
}
