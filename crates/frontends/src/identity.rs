//! Who a client says it is: from the query, a cookie or a header of its handshake.
//!
//! None of these proves anything by itself: a cookie or a header can be trusted where something in front sets it,
//! the query is for demos and trusted networks. Tokens and hooks to the back end are further variants of the same
//! question.

use veche_proto::http::Head;

/// Longest user name, in bytes: a personal channel's name is `#` and the user, at most 255 bytes together.
pub const USER_BYTES_MAX: usize = 254;

/// Where the user's name comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nobody: the connection has no user and can't be pushed to by one.
    None,
    /// `?NAME=` of the handshake's target.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// A header.
    Header(String),
}

/// Why a handshake names no usable user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The place where the name should stand is empty.
    #[error("no user: the handshake does not say who connects")]
    Missing,
    /// The name is too long or has control characters.
    #[error("bad user name: 1 to 254 bytes without control characters")]
    Malformed,
}

impl Identity {
    /// The user named by a handshake; `Ok(None)` where the route asks for none.
    pub fn user(&self, head: &Head<'_>) -> Result<Option<String>, Unknown> {
        let name = match self {
            Self::None => return Ok(None),
            Self::Query(name) => head.query(name).map(|value| value.into_owned()),
            Self::Cookie(name) => head.cookie(name).map(str::to_owned),
            Self::Header(name) => head.header(name).map(str::to_owned),
        };
        let name = name
            .filter(|name| !name.is_empty())
            .ok_or(Unknown::Missing)?;
        if !is_valid_user(&name) {
            return Err(Unknown::Malformed);
        }
        Ok(Some(name))
    }
}

/// Whether `name` can be a user: 1 to 254 bytes, no control characters.
pub fn is_valid_user(name: &str) -> bool {
    (1..=USER_BYTES_MAX).contains(&name.len()) && !name.bytes().any(|byte| byte.is_ascii_control())
}
