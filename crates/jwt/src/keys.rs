//! Keys for checking tokens: a shared secret, public keys in PEM, or a set that an issuer publishes.
//!
//! Each is read and judged once; a key that could not be used safely is refused here and not when a token comes.

mod pem;
mod published;

use std::fmt;

use p521::ecdsa::signature::Verifier as _;
use ring::{hmac, signature};

use crate::Algorithm;
use crate::algorithm::Digest;

/// Secrets below this many bytes are short: HS256 asks for as many as its digest has (RFC 7518, section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;

/// Most keys of one set: a token without `kid` is tried with each of its kind.
pub const KEYS_MAX: usize = 32;

/// Shortest and longest modulus of RSA, in bytes: 2048 and 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// The first byte of a point that is not compressed (SEC 1, section 2.3.3); both coordinates follow.
const UNCOMPRESSED: u8 = 4;

/// A public key of Ed25519, in bytes.
const ED25519_BYTES: usize = 32;

/// Why there are no keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKeys {
    /// The secret has no bytes.
    #[error("the secret is empty")]
    EmptySecret,
    /// A public key in the place of a secret: everybody could sign with it.
    #[error("this is a PEM key, not a secret")]
    PemAsSecret,
    /// No block "PUBLIC KEY" in a file.
    #[error(
        "no \"-----BEGIN PUBLIC KEY-----\" found: create the public key with `openssl pkey -in PRIVATE.pem -pubout`"
    )]
    NoPem,
    /// A private key where only its public half is needed.
    #[error("this is a private key; extract the public key with `openssl pkey -in FILE -pubout`")]
    Private,
    /// A block that can't be read.
    #[error("key {0} can't be read")]
    Unreadable(usize),
    /// A kind of key for which there is no algorithm.
    #[error(
        "key {0} has an unsupported type: expected RSA (2048 to 8192 bits), P-256, P-384, P-521 or Ed25519"
    )]
    Unsupported(usize),
    /// No JSON, or not the form of a set (RFC 7517, section 5).
    #[error("not a JSON Web Key Set")]
    NotASet,
    /// A set of which nothing can be used.
    #[error("the JSON Web Key Set has no usable key for RS, ES or EdDSA algorithms")]
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
    /// The only algorithm that its issuer allows for it.
    only: Option<Algorithm>,
    /// Until when it counts, in seconds since 1970.
    until_s: Option<u64>,
}

#[derive(Clone, PartialEq, Eq)]
enum Material {
    Secret(Box<[u8]>),
    /// Big-endian, without zeros in front.
    Rsa {
        modulus: Box<[u8]>,
        exponent: Box<[u8]>,
    },
    Point(Curve, Box<[u8]>),
    Ed25519([u8; ED25519_BYTES]),
}

/// A curve of ECDSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    /// Returns the curve with this name in a JSON Web Key (RFC 7518, section 6.2.1.1).
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
    /// A shared secret, as it is.
    ///
    /// # Errors
    /// It is empty, or no secret.
    pub fn secret(secret: &[u8]) -> Result<Self, BadKeys> {
        if secret.starts_with(b"-----BEGIN ") {
            return Err(BadKeys::PemAsSecret);
        }
        if secret.is_empty() {
            return Err(BadKeys::EmptySecret);
        }
        Self::own(vec![Key::new(None, Material::Secret(secret.into()))])
    }

    /// Adds keys that were in use before these; they count until then, in seconds since 1970.
    ///
    /// # Errors
    /// There are too many together.
    pub fn with_previous(mut self, previous: Self, until_s: Option<u64>) -> Result<Self, BadKeys> {
        let previous = previous.list.into_iter();
        self.list.extend(previous.map(|key| Key { until_s, ..key }));
        Self::own(self.list)
    }

    /// Returns the length in bytes of the shortest secret below [`SECRET_BYTES_MIN`].
    #[must_use]
    pub fn short_secret(&self) -> Option<usize> {
        let lengths = self.list.iter().filter_map(|key| match &key.material {
            Material::Secret(secret) => Some(secret.len()),
            _ => None,
        });
        lengths.min().filter(|length| *length < SECRET_BYTES_MIN)
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
        Self {
            id,
            material,
            only: None,
            until_s: None,
        }
    }

    /// Whether it may check a token that is signed by this algorithm. A key is for one kind of signature, so that a public
    /// key is never taken for a secret.
    pub(crate) fn is_for(&self, algorithm: Algorithm) -> bool {
        let is_its_kind = match (&self.material, algorithm) {
            (Material::Secret(_), Algorithm::Hs(_))
            | (Material::Rsa { .. }, Algorithm::Rs(_))
            | (Material::Ed25519(_), Algorithm::EdDsa) => true,
            (Material::Point(curve, _), Algorithm::Es(digest)) => curve.digest() == digest,
            _ => false,
        };
        is_its_kind && self.only.is_none_or(|only| only == algorithm)
    }

    /// Whether it counts at that time, in seconds since 1970.
    pub(crate) fn is_in_use(&self, now_s: u64) -> bool {
        self.until_s.is_none_or(|until_s| now_s < until_s)
    }

    /// Whether a token that names `id` may be signed with it. A key without a name may have been meant by any.
    pub(crate) fn is_called(&self, id: Option<&str>) -> bool {
        match (&self.id, id) {
            (Some(own), Some(id)) => own == id,
            _ => true,
        }
    }

    /// Whether `signature` is its own for `message`, by an algorithm that it is for.
    pub(crate) fn has_signed(
        &self,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        use signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519};
        if !self.is_for(algorithm) {
            return false;
        }
        let public = |algorithm, key: &[u8]| {
            let key = signature::UnparsedPublicKey::new(algorithm, key);
            key.verify(message, signature).is_ok()
        };
        match (&self.material, algorithm) {
            (Material::Secret(secret), Algorithm::Hs(digest)) => {
                let key = hmac::Key::new(hmac_of(digest), secret);
                // In constant time.
                hmac::verify(&key, message, signature).is_ok()
            }
            (Material::Rsa { modulus, exponent }, Algorithm::Rs(digest)) => {
                let key = signature::RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(rsa_of(digest), message, signature).is_ok()
            }
            (Material::Point(Curve::P256, point), _) => public(&ECDSA_P256_SHA256_FIXED, point),
            (Material::Point(Curve::P384, point), _) => public(&ECDSA_P384_SHA384_FIXED, point),
            (Material::Point(Curve::P521, point), _) => has_signed_p521(point, message, signature),
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

/// The one curve that ring does not have.
fn has_signed_p521(point: &[u8], message: &[u8], signature: &[u8]) -> bool {
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
            Material::Point(Curve::P256, _) => "P-256",
            Material::Point(Curve::P384, _) => "P-384",
            Material::Point(Curve::P521, _) => "P-521",
            Material::Ed25519(_) => "Ed25519",
        };
        write!(out, "Key({kind}, {:?})", self.id)
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

    /// `None` where it is not of that curve's form.
    fn point(curve: Curve, point: &[u8]) -> Option<Self> {
        let is_whole = point.len() == 1 + 2 * curve.coordinate_bytes();
        let fits = is_whole && point.first() == Some(&UNCOMPRESSED);
        fits.then(|| Self::Point(curve, point.into()))
    }

    fn ed25519(key: &[u8]) -> Option<Self> {
        key.try_into().ok().map(Self::Ed25519)
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    &number[zeros..]
}
