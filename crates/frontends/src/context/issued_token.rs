//! Users and tokens that are not let in, by the word of the back end.
//!
//! Who keeps them is [`Process`](crate::Process)'s business: they are the same for all workers.

pub use veche_jwt::TOKEN_ID_BYTES_MAX;
pub use veche_nodes::{Ban, BanError};

/// What of a token tells whether it was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedToken<'a> {
    /// Its user, if it names one.
    pub user: Option<&'a str>,
    /// Its `jti`.
    pub id: Option<&'a str>,
    /// Its `iat`, in seconds since 1970.
    pub issued_at_s: Option<u64>,
}
