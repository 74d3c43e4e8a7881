//! Verification of a token: format, signature, validity period, issuer, audience and user.
//!
//! The signature is checked before any claim is used. Before that, only the header is read, and its
//! `alg` and `kid` are only compared with known values.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Algorithm, Keys};

/// Maximum length of a token in bytes.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;

/// Maximum length of an accepted `jti` in bytes.
pub const TOKEN_ID_BYTES_MAX: usize = 255;

/// Requirements of a token besides its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRules {
    /// Accepted values of `iss`. If the list is empty, any `iss` is accepted.
    pub issuers: Vec<String>,
    /// Accepted values of `aud`; the token must contain at least one of them. If the list is empty,
    /// any `aud` is accepted (RFC 7519 section 4.1.3).
    pub audiences: Vec<String>,
    /// Whether `exp` is required.
    pub needs_expiry: bool,
    /// Tolerated clock difference in seconds.
    pub leeway_s: u64,
    /// The claim that contains the user: a string or a whole number.
    pub user: String,
}

impl Default for ClaimRules {
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

/// Claims of a valid token with a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The user, which is not empty. Nothing else about the value is checked.
    pub user: String,
    /// Expiry in seconds since 1970, including the leeway; `None` if the token never expires.
    pub expires_s: Option<u64>,
}

/// All claims of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedClaims {
    /// The user; `None` if the claim is missing or empty.
    pub user: Option<String>,
    /// Expiry in seconds since 1970, including the leeway; `None` if the token never expires.
    pub expires_s: Option<u64>,
    /// All claims of the token. Apart from `exp`, `nbf`, `iat`, `jti`, `iss`, `aud` and the user,
    /// they are not checked.
    pub all: Map<String, Value>,
}

/// Why a token is invalid. The error texts contain no part of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TokenError {
    /// The input is not a token, or too long.
    #[error("malformed")]
    Malformed,
    /// No key accepts the token's algorithm, which may be `none`.
    #[error("algorithm not allowed")]
    Algorithm,
    /// No key has the token's `kid`. The issuer may have newer keys.
    #[error("unknown key")]
    UnknownKey,
    /// No key verifies the signature.
    #[error("bad signature")]
    Signature,
    /// The token's `exp` has passed.
    #[error("expired")]
    Expired,
    /// The token's `nbf` is in the future.
    #[error("not yet valid")]
    NotYetValid,
    /// The required `exp` is missing.
    #[error("no expiry")]
    NoExpiry,
    /// The `iss` claim is missing or not accepted.
    #[error("wrong issuer")]
    Issuer,
    /// The `aud` claim does not match.
    #[error("wrong audience")]
    Audience,
    /// The user claim is missing, or neither a string nor a whole number.
    #[error("no valid user claim")]
    NoUser,
    /// A claim has a wrong type or is unsupported. The text names the claim and the expected type.
    #[error("{0}")]
    Claim(&'static str),
}

impl TokenError {
    /// Every reason with its metric label.
    pub const ALL: [(Self, &'static str); 11] = [
        (Self::Malformed, "malformed"),
        (Self::Algorithm, "algorithm"),
        (Self::UnknownKey, "unknown_key"),
        (Self::Signature, "signature"),
        (Self::Expired, "expired"),
        (Self::NotYetValid, "not_yet"),
        (Self::NoExpiry, "no_expiry"),
        (Self::Issuer, "issuer"),
        (Self::Audience, "audience"),
        (Self::NoUser, "no_user"),
        (Self::Claim(""), "claim"),
    ];

    /// Returns whether both errors have the same label.
    #[must_use]
    pub fn is_same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The relevant members of a token's header (RFC 7515 section 4.1). A duplicate member makes the
/// header malformed.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// Verifies a token in compact form (RFC 7515 section 3.1) at this time in seconds since 1970.
///
/// # Errors
/// The token is invalid.
pub fn verify(
    token: &str,
    keys: &Keys,
    rules: &ClaimRules,
    now_s: u64,
) -> Result<Claims, TokenError> {
    let claimed = verify_open(token, keys, rules, now_s)?;
    Ok(Claims {
        user: claimed.user.ok_or(TokenError::NoUser)?,
        expires_s: claimed.expires_s,
    })
}

/// Verifies a token that may have no user, and returns all its claims.
///
/// # Errors
/// The token is invalid.
pub fn verify_open(
    token: &str,
    keys: &Keys,
    rules: &ClaimRules,
    now_s: u64,
) -> Result<VerifiedClaims, TokenError> {
    let payload = payload(token, keys, now_s)?;
    let claims: Map<String, Value> =
        serde_json::from_slice(&payload).map_err(|_| TokenError::Malformed)?;
    let (user, expires_s) = check_claims(&claims, rules, now_s)?;
    Ok(VerifiedClaims {
        user,
        expires_s,
        all: claims,
    })
}

/// Returns the payload of a token if one of the keys verifies its signature.
pub(crate) fn payload(token: &str, keys: &Keys, now_s: u64) -> Result<Vec<u8>, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::Malformed);
    }
    let decode = |part: &str| {
        URL_SAFE_NO_PAD
            .decode(part)
            .map_err(|_| TokenError::Malformed)
    };
    let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, payload) = message.split_once('.').ok_or(TokenError::Malformed)?;
    let header: Header =
        serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Malformed)?;
    if header.crit.is_some() {
        // The token requires an extension, and none is supported (RFC 7515 section 4.1.11).
        return Err(TokenError::Malformed);
    }
    let algorithm = Algorithm::named(&header.alg).ok_or(TokenError::Algorithm)?;
    if matches!(algorithm, Algorithm::Hs(_)) && keys.is_published() {
        return Err(TokenError::Algorithm);
    }
    let (payload, signature) = (decode(payload)?, decode(signature)?);
    let id = header.kid.as_deref();
    let mut refusal = TokenError::UnknownKey;
    let named = keys.iter().filter(|key| key.has_id(id));
    for key in named.filter(|key| key.is_in_use(now_s)) {
        if !key.accepts_algorithm(algorithm) {
            if refusal == TokenError::UnknownKey {
                refusal = TokenError::Algorithm;
            }
            continue;
        }
        if key.verifies(algorithm, message.as_bytes(), &signature) {
            return Ok(payload);
        }
        refusal = TokenError::Signature;
    }
    Err(refusal)
}

fn check_claims(
    claims: &Map<String, Value>,
    rules: &ClaimRules,
    now_s: u64,
) -> Result<(Option<String>, Option<u64>), TokenError> {
    let time = |name| match claims.get(name) {
        None => Ok(None),
        Some(value) => date(value).map(Some).ok_or(TokenError::Malformed),
    };
    let expires_s = time("exp")?.map(|expires_s| expires_s.saturating_add(rules.leeway_s));
    match expires_s {
        None if rules.needs_expiry => return Err(TokenError::NoExpiry),
        Some(expires_s) if now_s >= expires_s => return Err(TokenError::Expired),
        _ => {}
    }
    if time("nbf")?.is_some_and(|begins_s| now_s.saturating_add(rules.leeway_s) < begins_s) {
        return Err(TokenError::NotYetValid);
    }
    if claims.get("iat").is_some_and(|at| date(at).is_none()) {
        return Err(TokenError::Claim("iat has to be a number"));
    }
    // The back end revokes tokens by `jti`, so a token with an invalid `jti` is refused.
    if claims.get("jti").is_some_and(|id| !is_id(id)) {
        return Err(TokenError::Claim(
            "jti has to be a string of 1 to 255 bytes",
        ));
    }
    let issuer = claims.get("iss").and_then(Value::as_str);
    let is_known = |issuer: &str| rules.issuers.iter().any(|known| known == issuer);
    if !rules.issuers.is_empty() && !issuer.is_some_and(is_known) {
        return Err(TokenError::Issuer);
    }
    let audience = audience(claims.get("aud"))?;
    let is_ours = |one: &&str| rules.audiences.iter().any(|our| our == one);
    if !rules.audiences.is_empty() && !audience.iter().any(is_ours) {
        return Err(TokenError::Audience);
    }
    let user = match claims.get(&rules.user) {
        Some(Value::String(user)) => Some(user.clone()).filter(|user| !user.is_empty()),
        Some(Value::Number(number)) if !number.is_f64() => Some(number.to_string()),
        None => None,
        Some(_) => return Err(TokenError::NoUser),
    };
    Ok((user, expires_s))
}

/// Parses a NumericDate (RFC 7519 section 2), in seconds since 1970; `None` if it is not a number. Fractions are
/// dropped, and times before 1970 become 0.
fn date(value: &Value) -> Option<u64> {
    match value.as_u64() {
        Some(seconds) => Some(seconds),
        // The cast saturates, so a date too large for `u64` is still valid.
        None => value.as_f64().map(|seconds| seconds as u64),
    }
}

/// Returns whether a `jti` (RFC 7519 section 4.1.7) is usable for revocation.
fn is_id(value: &Value) -> bool {
    let id = value.as_str();
    id.is_some_and(|id| (1..=TOKEN_ID_BYTES_MAX).contains(&id.len()))
}

/// Returns the members of `aud`, which is a string or a list.
fn audience(claim: Option<&Value>) -> Result<Vec<&str>, TokenError> {
    let wrong = TokenError::Claim("aud has to be a string or an array of strings");
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
