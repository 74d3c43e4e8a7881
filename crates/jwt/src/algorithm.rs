//! The supported signature algorithms of tokens: the secure and widely used algorithms of RFC 7518
//! and RFC 8037.

/// A signature algorithm of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// HMAC: the verification key can also sign tokens (RFC 7518 section 3.2).
    Hs(Digest),
    /// RSA, PKCS #1 v1.5, with keys of 2048 to 8192 bits (RFC 7518, section 3.3).
    Rs(Digest),
    /// ECDSA on the curve of the digest (RFC 7518 section 3.4).
    Es(Digest),
    /// Ed25519 (RFC 8037, section 3.1).
    EdDsa,
}

/// The SHA-2 digest of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Digest {
    /// SHA-256, with ECDSA on P-256.
    Sha256,
    /// SHA-384, with ECDSA on P-384.
    Sha384,
    /// SHA-512, with ECDSA on P-521.
    Sha512,
}

impl Algorithm {
    const ALL: [(Self, &'static str); 10] = [
        (Self::Hs(Digest::Sha256), "HS256"),
        (Self::Hs(Digest::Sha384), "HS384"),
        (Self::Hs(Digest::Sha512), "HS512"),
        (Self::Rs(Digest::Sha256), "RS256"),
        (Self::Rs(Digest::Sha384), "RS384"),
        (Self::Rs(Digest::Sha512), "RS512"),
        (Self::Es(Digest::Sha256), "ES256"),
        (Self::Es(Digest::Sha384), "ES384"),
        (Self::Es(Digest::Sha512), "ES512"),
        (Self::EdDsa, "EdDSA"),
    ];

    /// Returns the algorithm with this name in `alg`; `None` for an unknown name, such as `none`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find_map(|(algorithm, known)| (known == name).then_some(algorithm))
    }
}
