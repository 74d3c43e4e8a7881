//! Keys that tokens are checked with: a shared secret, public keys in PEM, or a set that an issuer publishes.
//!
//! Each is read and judged once; a key that could not be used safely is refused here and not when a token comes.

mod pem;
mod published;

use std::fmt;

use ring::{hmac, signature};

use crate::Algorithm;

/// Shortest secret, in bytes: as long as the digest (RFC 7518, section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;

/// Most keys of one set: a token without `kid` is tried with each of its kind.
pub const KEYS_MAX: usize = 32;

/// Shortest and longest modulus of RSA, in bytes: 2048 and 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// A point of P-256, not compressed (SEC 1, section 2.3.3), in bytes.
const POINT_BYTES: usize = 65;

/// A public key of Ed25519, in bytes.
const ED25519_BYTES: usize = 32;

/// Why there are no keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKeys {
    /// See [`SECRET_BYTES_MIN`].
    #[error("a secret has at least {SECRET_BYTES_MIN} bytes, this one has {0}")]
    ShortSecret(usize),
    /// A public key in the place of a secret: everybody could sign with it.
    #[error("this is a key in PEM, not a secret")]
    PemAsSecret,
    /// No block "PUBLIC KEY" in a file.
    #[error(
        "no \"-----BEGIN PUBLIC KEY-----\" in it: `openssl pkey -in PRIVATE.pem -pubout` writes one"
    )]
    NoPem,
    /// A private key where only its public half is needed.
    #[error(
        "this is a private key, which does not belong here: `openssl pkey -in FILE -pubout` writes the public one"
    )]
    Private,
    /// A block that can't be read.
    #[error("key {0} can't be read")]
    Unreadable(usize),
    /// A kind of key for which there is no algorithm.
    #[error("key {0} is none of RSA (2048 to 8192 bits), P-256 and Ed25519")]
    Unsupported(usize),
    /// No JSON, or not the form of a set (RFC 7517, section 5).
    #[error("no JSON Web Key Set")]
    NotASet,
    /// A set of which nothing can be used.
    #[error("a JSON Web Key Set without a key to check RS256, ES256 or EdDSA with")]
    NothingUsable,
    /// See [`KEYS_MAX`].
    #[error("more than {KEYS_MAX} keys")]
    TooMany,
}

/// Keys of one issuer; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    list: Vec<Key>,
    /// They come from the issuer, who names them in tokens and changes them; among them there is never a secret.
    is_published: bool,
}

/// One key. It shows its kind and its name, never itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: Option<String>,
    material: Material,
}

#[derive(Clone, PartialEq, Eq)]
enum Material {
    Secret(Box<[u8]>),
    /// Big-endian, without zeros in front.
    Rsa {
        modulus: Box<[u8]>,
        exponent: Box<[u8]>,
    },
    P256([u8; POINT_BYTES]),
    Ed25519([u8; ED25519_BYTES]),
}

impl Keys {
    /// A shared secret, as it is.
    ///
    /// # Errors
    /// It is too short, or no secret.
    pub fn secret(secret: &[u8]) -> Result<Self, BadKeys> {
        if secret.starts_with(b"-----BEGIN ") {
            return Err(BadKeys::PemAsSecret);
        }
        if secret.len() < SECRET_BYTES_MIN {
            return Err(BadKeys::ShortSecret(secret.len()));
        }
        Self::own(vec![Key::new(None, Material::Secret(secret.into()))])
    }

    /// Public keys of a PEM file (RFC 7468, section 13): each block "PUBLIC KEY" is one. Several are for the time of a
    /// change, while tokens of both are around.
    ///
    /// # Errors
    /// There is none, or one that can't be used.
    pub fn pem(text: &[u8]) -> Result<Self, BadKeys> {
        Self::own(pem::read(text)?)
    }

    /// A JSON Web Key Set (RFC 7517). What can't be used in it is left out: keys for encryption, of other kinds, secrets.
    ///
    /// # Errors
    /// It is none, or nothing is left.
    pub fn published(json: &[u8]) -> Result<Self, BadKeys> {
        let list = published::read(json)?;
        Ok(Self {
            list,
            is_published: true,
        })
    }

    fn own(list: Vec<Key>) -> Result<Self, BadKeys> {
        if list.len() > KEYS_MAX {
            return Err(BadKeys::TooMany);
        }
        Ok(Self {
            list,
            is_published: false,
        })
    }

    /// How many.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Key> {
        self.list.iter()
    }

    pub(crate) fn is_published(&self) -> bool {
        self.is_published
    }
}

impl Key {
    fn new(id: Option<String>, material: Material) -> Self {
        Self { id, material }
    }

    /// The only algorithm that it is for.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match &self.material {
            Material::Secret(_) => Algorithm::Hs256,
            Material::Rsa { .. } => Algorithm::Rs256,
            Material::P256(_) => Algorithm::Es256,
            Material::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether a token that names `id` may be signed with it. A key without a name may have been meant by any.
    pub(crate) fn is_called(&self, id: Option<&str>) -> bool {
        match (&self.id, id) {
            (Some(own), Some(id)) => own == id,
            _ => true,
        }
    }

    /// Whether `signature` is its own for `message`.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        use signature::{ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256};
        let public = |algorithm, key: &[u8]| {
            signature::UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        let verified = match &self.material {
            Material::Secret(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                // In constant time.
                hmac::verify(&key, message, signature)
            }
            Material::Rsa { modulus, exponent } => signature::RsaPublicKeyComponents {
                n: modulus,
                e: exponent,
            }
            .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            Material::P256(point) => public(&ECDSA_P256_SHA256_FIXED, point),
            Material::Ed25519(key) => public(&ED25519, key),
        };
        verified.is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Key({}, {:?})", self.algorithm().name(), self.id)
    }
}

impl Material {
    /// `None` where it is too short or too long.
    fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
        let fits = MODULUS_BYTES.contains(&modulus.len()) && !exponent.is_empty();
        fits.then(|| Self::Rsa {
            modulus: modulus.into(),
            exponent: exponent.into(),
        })
    }

    fn p256(point: &[u8]) -> Option<Self> {
        let point: [u8; POINT_BYTES] = point.try_into().ok()?;
        (point[0] == 4).then_some(Self::P256(point))
    }

    fn ed25519(key: &[u8]) -> Option<Self> {
        key.try_into().ok().map(Self::Ed25519)
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    &number[zeros..]
}
