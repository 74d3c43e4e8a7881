//! Bans of users and revocations of tokens, both ordered by back ends.

use serde::{Deserialize, Serialize};

/// A ban or revocation. It is in force until it expires or is lifted. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ban {
    /// Refuses connections of a user.
    User {
        /// The name of the user to refuse.
        user: String,
        /// The time at which the ban expires; `None`: it lasts until the user is allowed again.
        until_s: Option<u64>,
    },
    /// Lifts the ban of a user, who may then connect again.
    #[serde(rename = "user_allowed")]
    UserAllowed {
        /// The name of the user to allow.
        user: String,
    },
    /// Revokes a single token.
    Token {
        /// The token's `jti` (RFC 7519, section 4.1.7).
        id: String,
        /// The time at which the revocation expires; `None`: never.
        until_s: Option<u64>,
    },
    /// Revokes all tokens of a user.
    TokensOf {
        /// The user whose tokens are revoked.
        user: String,
        /// Only tokens whose claim `iat` (RFC 7519, section 4.1.6) is before this time, and tokens
        /// without this claim, are revoked.
        issued_before_s: u64,
        /// The time at which the revocation expires; `None`: never.
        until_s: Option<u64>,
    },
}

impl Ban {
    /// Returns the time at which the ban or revocation expires; `None`: never.
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

/// The reason why a ban is not in force or may be lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum BanError {
    /// The maximum number of bans is reached, so the ban is not in force.
    #[error("too many users and tokens are banned")]
    TooMany,
    /// The ban is in force but could not be saved, so it ends when this server process ends.
    #[error("the ban is in force, but could not be saved and ends with the server process: {0}")]
    NotWritten(String),
}
