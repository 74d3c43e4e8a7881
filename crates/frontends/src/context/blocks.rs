//! Users and tokens that are not let in, by the word of the back end.
//!
//! Who keeps them is [`Process`](crate::Process)'s business: they are the same for all workers.

pub use veche_jwt::TOKEN_ID_BYTES_MAX;
pub use veche_nodes::{Block, NotBlocked};

/// What of a token tells whether it was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued<'a> {
    /// Its user, if it names one.
    pub user: Option<&'a str>,
    /// Its `jti`.
    pub id: Option<&'a str>,
    /// Its `iat`, in seconds since 1970.
    pub at_s: Option<u64>,
}
