//! Tokens that say who somebody is (JWT, RFC 7519): whether they hold, and whose they are.
//!
//! Pure: it knows neither where a token came from nor how keys come to be known, and the time is an argument. What makes
//! a token dangerous is decided by the keys and never by the token (RFC 8725): each [`Key`] is for one kind of signature, `kid`
//! is only compared, and what points elsewhere (`jku`, `jwk`, `x5u`, `x5c`) is not looked at. The arithmetic is ring's,
//! but for P-521.
//! Why there is a verifier of our own: docs/decisions/09-jwt.md.

mod algorithm;
mod keys;
mod verify;

#[cfg(test)]
mod tests;

pub use algorithm::{Algorithm, Digest};
pub use keys::{KEYS_MAX, Key, KeyError, Keys, SECRET_BYTES_MIN};
pub use verify::{
    ClaimRules, Claims, TOKEN_BYTES_MAX, TOKEN_ID_BYTES_MAX, TokenError, VerifiedClaims, verify,
    verify_open,
};
