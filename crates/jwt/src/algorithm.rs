//! How a token can be signed: the four of RFC 7518 and RFC 8037 that are in use and sound.

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// HMAC with SHA-256: whoever can check a token can make one (RFC 7518, section 3.2).
    Hs256,
    /// RSA, PKCS #1 v1.5, with SHA-256; keys of 2048 to 8192 bits (RFC 7518, section 3.3).
    Rs256,
    /// ECDSA on P-256 with SHA-256 (RFC 7518, section 3.4).
    Es256,
    /// Ed25519 (RFC 8037, section 3.1).
    EdDsa,
}

impl Algorithm {
    /// By its name in `alg`. There is none for `none`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "HS256" => Self::Hs256,
            "RS256" => Self::Rs256,
            "ES256" => Self::Es256,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }

    /// Its name in `alg`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}
