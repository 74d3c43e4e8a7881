//! Verification keys: a shared secret, PEM public keys, or an issuer's published key set.
//!
//! Each key is parsed and checked once; an unsafe key is refused here instead of when a token arrives.

mod jwks;
mod pem;

use std::fmt;

use p521::ecdsa::signature::Verifier as _;
use ring::{hmac, signature};

use crate::Algorithm;
use crate::algorithm::Digest;

/// The length in bytes below which a shared secret is reported as short: HS256 requires at least the
/// length of its digest (RFC 7518 section 3.2). A setting determines whether that is a warning or an error.
pub const SECRET_BYTES_MIN: usize = 32;

/// Maximum number of keys in a set. Limits the work for a token without `kid`, which is tried with
/// each key of its kind.
pub const KEYS_MAX: usize = 32;

/// Length of an RSA modulus in bytes: 2048 to 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// First byte of an uncompressed point (SEC 1 section 2.3.3); both coordinates follow.
const UNCOMPRESSED: u8 = 4;

/// Length of an Ed25519 public key in bytes.
const ED25519_BYTES: usize = 32;

/// Why keys could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The secret is empty.
    #[error("the secret is empty")]
    EmptySecret,
    /// The secret is a public key, with which anyone could sign.
    #[error("this is a PEM key, not a shared secret")]
    PemAsSecret,
    /// The file has no "PUBLIC KEY" block.
    #[error(
        "no \"-----BEGIN PUBLIC KEY-----\" found: create the public key with `openssl pkey -in PRIVATE.pem -pubout`"
    )]
    NoPem,
    /// The file contains a private key, although the public key is sufficient.
    #[error("this is a private key; extract the public key with `openssl pkey -in FILE -pubout`")]
    Private,
    /// The PEM block with this number is malformed. Blocks are numbered from 1.
    #[error("key {0} can't be parsed")]
    Unreadable(usize),
    /// The PEM block with this number has a key type without a supported algorithm. Blocks are
    /// numbered from 1.
    #[error(
        "key {0} has an unsupported type: expected RSA (2048 to 8192 bits), P-256, P-384, P-521 or Ed25519"
    )]
    Unsupported(usize),
    /// The input is not JSON, or not a key set (RFC 7517 section 5).
    #[error("not a JSON Web Key Set")]
    NotASet,
    /// The set has no usable key.
    #[error("the JSON Web Key Set has no usable key for RS, ES or EdDSA algorithms")]
    NothingUsable,
    /// More than [`KEYS_MAX`] keys.
    #[error("there are more than {KEYS_MAX} keys")]
    TooMany,
}

/// The keys of one issuer, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    keys: Vec<Key>,
    /// Whether the issuer publishes the keys. The issuer then names the key in each token and rotates the keys; the set
    /// never contains a secret.
    is_published: bool,
}

/// A verification key. Debug output shows its kind and id only.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: Option<String>,
    material: Material,
    /// The only algorithm that the issuer permits for this key; `None` permits each algorithm of
    /// the key's kind.
    algorithm: Option<Algorithm>,
    /// Expiry in seconds since 1970.
    until_s: Option<u64>,
}

#[derive(Clone, PartialEq, Eq)]
enum Material {
    Secret(Box<[u8]>),
    /// Modulus and exponent are big-endian, without leading zeros.
    Rsa {
        modulus: Box<[u8]>,
        exponent: Box<[u8]>,
    },
    Ec(Curve, Box<[u8]>),
    Ed25519([u8; ED25519_BYTES]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    /// Returns the curve with this name in a JSON Web Key (RFC 7518, section 6.2.1.1); `None` for an unsupported curve.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "P-256" => Self::P256,
            "P-384" => Self::P384,
            "P-521" => Self::P521,
            _ => return None,
        })
    }

    /// Returns the length of a coordinate in bytes.
    fn coordinate_bytes(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    fn digest(self) -> Digest {
        match self {
            Self::P256 => Digest::Sha256,
            Self::P384 => Digest::Sha384,
            Self::P521 => Digest::Sha512,
        }
    }
}

impl Keys {
    /// Creates keys from a shared secret.
    ///
    /// # Errors
    /// The secret is empty, or a PEM key.
    pub fn secret(secret: &[u8]) -> Result<Self, KeyError> {
        if secret.starts_with(b"-----BEGIN ") {
            return Err(KeyError::PemAsSecret);
        }
        if secret.is_empty() {
            return Err(KeyError::EmptySecret);
        }
        Self::own(vec![Key::new(None, Material::Secret(secret.into()))])
    }

    /// Adds previous keys, which are valid until `until_s`, in seconds since 1970; `None` for no limit.
    ///
    /// # Errors
    /// There are too many keys in total.
    pub fn with_previous(mut self, previous: Self, until_s: Option<u64>) -> Result<Self, KeyError> {
        let previous = previous.keys.into_iter();
        self.keys.extend(previous.map(|key| Key { until_s, ..key }));
        Self::own(self.keys)
    }

    /// Returns the length of the shortest secret in bytes if it is below [`SECRET_BYTES_MIN`]; otherwise `None`.
    #[must_use]
    pub fn short_secret(&self) -> Option<usize> {
        let lengths = self.keys.iter().filter_map(|key| match &key.material {
            Material::Secret(secret) => Some(secret.len()),
            _ => None,
        });
        lengths.min().filter(|length| *length < SECRET_BYTES_MIN)
    }

    /// Parses the public keys of a PEM file (RFC 7468 section 13), one per "PUBLIC KEY" block. With two keys in the
    /// file, tokens of the old and the new key are valid during a rotation.
    ///
    /// # Errors
    /// There is no key, or an unusable one.
    pub fn pem(text: &[u8]) -> Result<Self, KeyError> {
        Self::own(pem::read(text)?)
    }

    /// Parses a JSON Web Key Set (RFC 7517). Unusable keys are skipped: encryption keys, keys of
    /// unsupported types, and secrets.
    ///
    /// # Errors
    /// The set is malformed or has no usable key.
    pub fn published(json: &[u8]) -> Result<Self, KeyError> {
        let list = jwks::read(json)?;
        Ok(Self {
            keys: list,
            is_published: true,
        })
    }

    fn own(list: Vec<Key>) -> Result<Self, KeyError> {
        if list.len() > KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        Ok(Self {
            keys: list,
            is_published: false,
        })
    }

    /// Returns the number of keys.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "the list is never empty")]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    pub(crate) fn is_published(&self) -> bool {
        self.is_published
    }
}

impl Key {
    fn new(id: Option<String>, material: Material) -> Self {
        Self {
            id,
            material,
            algorithm: None,
            until_s: None,
        }
    }

    /// Returns whether the key may verify tokens with this algorithm. A key is for one kind of signature, so a public
    /// key is never used as a secret.
    pub(crate) fn accepts_algorithm(&self, algorithm: Algorithm) -> bool {
        let is_its_kind = match (&self.material, algorithm) {
            (Material::Secret(_), Algorithm::Hs(_))
            | (Material::Rsa { .. }, Algorithm::Rs(_))
            | (Material::Ed25519(_), Algorithm::EdDsa) => true,
            (Material::Ec(curve, _), Algorithm::Es(digest)) => curve.digest() == digest,
            _ => false,
        };
        is_its_kind && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Returns whether the key is valid at this time, in seconds since 1970.
    pub(crate) fn is_in_use(&self, now_s: u64) -> bool {
        self.until_s.is_none_or(|until_s| now_s < until_s)
    }

    /// Returns whether the key matches a token's `kid`. They always match if the key has no id or the token has no `kid`.
    pub(crate) fn has_id(&self, id: Option<&str>) -> bool {
        match (&self.id, id) {
            (Some(own), Some(id)) => own == id,
            _ => true,
        }
    }

    /// Returns whether `signature` is a valid signature of `message` by this key.
    pub(crate) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        use signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519};
        if !self.accepts_algorithm(algorithm) {
            return false;
        }
        let public = |algorithm, key: &[u8]| {
            let key = signature::UnparsedPublicKey::new(algorithm, key);
            key.verify(message, signature).is_ok()
        };
        match (&self.material, algorithm) {
            (Material::Secret(secret), Algorithm::Hs(digest)) => {
                let key = hmac::Key::new(hmac_of(digest), secret);
                // Compares in constant time.
                hmac::verify(&key, message, signature).is_ok()
            }
            (Material::Rsa { modulus, exponent }, Algorithm::Rs(digest)) => {
                let key = signature::RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(rsa_of(digest), message, signature).is_ok()
            }
            (Material::Ec(Curve::P256, point), _) => public(&ECDSA_P256_SHA256_FIXED, point),
            (Material::Ec(Curve::P384, point), _) => public(&ECDSA_P384_SHA384_FIXED, point),
            (Material::Ec(Curve::P521, point), _) => verifies_p521(point, message, signature),
            (Material::Ed25519(key), _) => public(&ED25519, key),
            _ => false,
        }
    }
}

fn hmac_of(digest: Digest) -> hmac::Algorithm {
    match digest {
        Digest::Sha256 => hmac::HMAC_SHA256,
        Digest::Sha384 => hmac::HMAC_SHA384,
        Digest::Sha512 => hmac::HMAC_SHA512,
    }
}

fn rsa_of(digest: Digest) -> &'static signature::RsaParameters {
    match digest {
        Digest::Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Digest::Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Digest::Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
    }
}

/// Returns whether an ECDSA signature on the curve P-521 is valid. The crate ring does not support this curve.
fn verifies_p521(point: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(point);
    let signature = p521::ecdsa::Signature::from_slice(signature);
    match (key, signature) {
        (Ok(key), Ok(signature)) => key.verify(message, &signature).is_ok(),
        _ => false,
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.material {
            Material::Secret(_) => "secret",
            Material::Rsa { .. } => "RSA",
            Material::Ec(Curve::P256, _) => "P-256",
            Material::Ec(Curve::P384, _) => "P-384",
            Material::Ec(Curve::P521, _) => "P-521",
            Material::Ed25519(_) => "Ed25519",
        };
        write!(out, "Key({kind}, {:?})", self.id)
    }
}

impl Material {
    /// Returns `None` if the modulus is too short or too long.
    fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
        let fits = MODULUS_BYTES.contains(&modulus.len()) && !exponent.is_empty();
        fits.then(|| Self::Rsa {
            modulus: modulus.into(),
            exponent: exponent.into(),
        })
    }

    /// Returns `None` if the point is malformed for that curve.
    fn point(curve: Curve, point: &[u8]) -> Option<Self> {
        let is_whole = point.len() == 1 + 2 * curve.coordinate_bytes();
        let fits = is_whole && point.first() == Some(&UNCOMPRESSED);
        fits.then(|| Self::Ec(curve, point.into()))
    }

    fn ed25519(key: &[u8]) -> Option<Self> {
        key.try_into().ok().map(Self::Ed25519)
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    &number[zeros..]
}
