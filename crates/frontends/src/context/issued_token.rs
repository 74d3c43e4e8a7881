//! The claims by which a token is checked for revocation.
//!
//! Bans and revocations are stored by [`ProcessServices`](crate::ProcessServices), since they apply to all workers.

pub use veche_jwt::TOKEN_ID_BYTES_MAX;
pub use veche_nodes::{Ban, BanError};

/// The claims that determine whether a token was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedToken<'a> {
    /// The token's user, if any.
    pub user: Option<&'a str>,
    /// The token's `jti` claim, if any.
    pub id: Option<&'a str>,
    /// The token's `iat`, in seconds since 1970.
    pub issued_at_s: Option<u64>,
}
