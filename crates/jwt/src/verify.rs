//! Whether a token holds: its form, its signature, its time, whom it is of and whom it is for.
//!
//! The signature comes before all that a token says of itself; of an unsigned one only `alg` and `kid` are read, and
//! both are only compared.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Algorithm, Keys};

/// Longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;

/// Longest `jti` of a token that is accepted, in bytes.
pub const TOKEN_ID_BYTES_MAX: usize = 255;

/// What is asked of a token besides its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Its `iss` has to be one of these; empty: it may be anything.
    pub issuers: Vec<String>,
    /// One of its `aud` has to be one of these; empty: it may have any (RFC 7519, section 4.1.3).
    pub audiences: Vec<String>,
    /// It has to have an `exp`.
    pub needs_expiry: bool,
    /// How far clocks may differ, in seconds.
    pub leeway_s: u64,
    /// The claim that holds the user: a string, or a whole number.
    pub user: String,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            issuers: Vec::new(),
            audiences: Vec::new(),
            needs_expiry: true,
            leeway_s: 30,
            user: "sub".to_owned(),
        }
    }
}

/// What a token that holds says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Not empty; nothing else of it is checked.
    pub user: String,
    /// From when it holds no more, in seconds since 1970, leeway included; `None`: it always holds.
    pub expires_s: Option<u64>,
}

/// All that a token says that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// `None` where the claim is missing or empty.
    pub user: Option<String>,
    /// As that of [`Claims`].
    pub expires_s: Option<u64>,
    /// Its claims as they stand; nothing else of them is checked.
    pub all: Map<String, Value>,
}

/// Why a token does not hold. None of these shows any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// No token at all, or too long a one.
    #[error("malformed")]
    Malformed,
    /// Signed by an algorithm that no key is for; `none` is one of those.
    #[error("algorithm not allowed")]
    Algorithm,
    /// Its `kid` is no key's. The issuer may have newer ones.
    #[error("unknown key")]
    UnknownKey,
    /// No key has signed it.
    #[error("bad signature")]
    Signature,
    /// Its `exp` is over.
    #[error("expired")]
    Expired,
    /// Its `nbf` is yet to come.
    #[error("not yet valid")]
    NotYet,
    /// It has no `exp`, so it would hold for ever, and the rules want one.
    #[error("no expiry")]
    NoExpiry,
    /// Another issuer's, or nobody's.
    #[error("wrong issuer")]
    Issuer,
    /// For somebody else.
    #[error("wrong audience")]
    Audience,
    /// The claim of the user is missing, or neither a string nor a whole number.
    #[error("no user (sub)")]
    NoUser,
    /// A claim that counts has a wrong type, or asks for what is not there: which, and what is expected.
    #[error("{0}")]
    Claim(&'static str),
}

impl Refusal {
    /// Every reason, with its label in metrics.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Malformed, "malformed"),
        (Self::Algorithm, "algorithm"),
        (Self::UnknownKey, "unknown_key"),
        (Self::Signature, "signature"),
        (Self::Expired, "expired"),
        (Self::NotYet, "not_yet"),
        (Self::NoExpiry, "no_expiry"),
        (Self::Issuer, "issuer"),
        (Self::Audience, "audience"),
        (Self::NoUser, "no_user"),
        (Self::Claim(""), "claim"),
    ];

    /// Whether it has the same label.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The members of a token's header that count (RFC 7515, section 4.1); one that comes twice makes it malformed.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// Judges a token in its compact form (RFC 7515, section 3.1) at a time, in seconds since 1970.
///
/// # Errors
/// It does not hold.
pub fn verify(token: &str, keys: &Keys, rules: &Rules, now_s: u64) -> Result<Claims, Refusal> {
    let claimed = verify_open(token, keys, rules, now_s)?;
    Ok(Claims {
        user: claimed.user.ok_or(Refusal::NoUser)?,
        expires_s: claimed.expires_s,
    })
}

/// The same of a token that may be nobody's, with all that it says.
///
/// # Errors
/// It does not hold.
pub fn verify_open(
    token: &str,
    keys: &Keys,
    rules: &Rules,
    now_s: u64,
) -> Result<Claimed, Refusal> {
    let payload = payload(token, keys, now_s)?;
    let claims: Map<String, Value> =
        serde_json::from_slice(&payload).map_err(|_| Refusal::Malformed)?;
    let (user, expires_s) = judge(&claims, rules, now_s)?;
    Ok(Claimed {
        user,
        expires_s,
        all: claims,
    })
}

/// Returns the payload of a token that is signed with one of the keys.
pub(crate) fn payload(token: &str, keys: &Keys, now_s: u64) -> Result<Vec<u8>, Refusal> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Refusal::Malformed);
    }
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| Refusal::Malformed);
    let (message, signature) = token.rsplit_once('.').ok_or(Refusal::Malformed)?;
    let (header, payload) = message.split_once('.').ok_or(Refusal::Malformed)?;
    let header: Header =
        serde_json::from_slice(&decode(header)?).map_err(|_| Refusal::Malformed)?;
    if header.crit.is_some() {
        // Something that has to be understood, and is not (RFC 7515, section 4.1.11).
        return Err(Refusal::Malformed);
    }
    let algorithm = Algorithm::named(&header.alg).ok_or(Refusal::Algorithm)?;
    if matches!(algorithm, Algorithm::Hs(_)) && keys.is_published() {
        return Err(Refusal::Algorithm);
    }
    let (payload, signature) = (decode(payload)?, decode(signature)?);
    let id = header.kid.as_deref();
    let mut refusal = Refusal::UnknownKey;
    let named = keys.iter().filter(|key| key.is_called(id));
    for key in named.filter(|key| key.is_in_use(now_s)) {
        if !key.is_for(algorithm) {
            if refusal == Refusal::UnknownKey {
                refusal = Refusal::Algorithm;
            }
            continue;
        }
        if key.has_signed(algorithm, message.as_bytes(), &signature) {
            return Ok(payload);
        }
        refusal = Refusal::Signature;
    }
    Err(refusal)
}

fn judge(
    claims: &Map<String, Value>,
    rules: &Rules,
    now_s: u64,
) -> Result<(Option<String>, Option<u64>), Refusal> {
    let time = |name| match claims.get(name) {
        None => Ok(None),
        Some(value) => date(value).map(Some).ok_or(Refusal::Malformed),
    };
    let expires_s = time("exp")?.map(|expires_s| expires_s.saturating_add(rules.leeway_s));
    match expires_s {
        None if rules.needs_expiry => return Err(Refusal::NoExpiry),
        Some(expires_s) if now_s >= expires_s => return Err(Refusal::Expired),
        _ => {}
    }
    if time("nbf")?.is_some_and(|begins_s| now_s.saturating_add(rules.leeway_s) < begins_s) {
        return Err(Refusal::NotYet);
    }
    if claims.get("iat").is_some_and(|at| date(at).is_none()) {
        return Err(Refusal::Claim("iat has to be a number"));
    }
    // Tokens are revoked by it, so one that could not be named must not be accepted.
    if claims.get("jti").is_some_and(|id| !is_id(id)) {
        return Err(Refusal::Claim("jti has to be a string of 1 to 255 bytes"));
    }
    let issuer = claims.get("iss").and_then(Value::as_str);
    let is_known = |issuer: &str| rules.issuers.iter().any(|known| known == issuer);
    if !rules.issuers.is_empty() && !issuer.is_some_and(is_known) {
        return Err(Refusal::Issuer);
    }
    let audience = audience(claims.get("aud"))?;
    let is_ours = |one: &&str| rules.audiences.iter().any(|our| our == one);
    if !rules.audiences.is_empty() && !audience.iter().any(is_ours) {
        return Err(Refusal::Audience);
    }
    let user = match claims.get(&rules.user) {
        Some(Value::String(user)) => Some(user.clone()).filter(|user| !user.is_empty()),
        Some(Value::Number(number)) if !number.is_f64() => Some(number.to_string()),
        None => None,
        Some(_) => return Err(Refusal::NoUser),
    };
    Ok((user, expires_s))
}

/// A NumericDate (RFC 7519, section 2): seconds since 1970, possibly with a fraction, which is left out. What lies before
/// is 1970.
fn date(value: &Value) -> Option<u64> {
    match value.as_u64() {
        Some(seconds) => Some(seconds),
        // Saturating: also what lies far off is a time.
        None => value.as_f64().map(|seconds| seconds as u64),
    }
}

/// A `jti` (RFC 7519, section 4.1.7) by which the token can be revoked.
fn is_id(value: &Value) -> bool {
    let id = value.as_str();
    id.is_some_and(|id| (1..=TOKEN_ID_BYTES_MAX).contains(&id.len()))
}

/// Returns the members of a token's `aud`, which is one or several.
fn audience(claim: Option<&Value>) -> Result<Vec<&str>, Refusal> {
    let wrong = Refusal::Claim("aud has to be a string or an array of strings");
    match claim {
        None => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one]),
        Some(Value::Array(all)) => {
            let all = all.iter().map(Value::as_str);
            all.collect::<Option<_>>().ok_or(wrong)
        }
        Some(_) => Err(wrong),
    }
}
