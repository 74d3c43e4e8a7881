//! Verification of JSON Web Tokens (RFC 7519).
//!
//! This crate has no I/O: callers provide tokens, keys and the time. The key determines how a token
//! is verified, never the token itself (RFC 8725): each [`Key`] is for one kind of signature, `kid`
//! is only compared with known ids, and references (`jku`, `jwk`, `x5u`, `x5c`) are ignored. The
//! crate ring does the arithmetic, except for P-521. docs/decisions/09-jwt.md explains why no
//! existing verifier is used.

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
