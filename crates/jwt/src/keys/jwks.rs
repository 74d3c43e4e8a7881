//! JSON Web Key Sets (RFC 7517), with the members of RFC 7518 section 6 and RFC 8037 section 2.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::{Curve, KEYS_MAX, Key, KeyError, Material, UNCOMPRESSED};
use crate::Algorithm;

#[derive(Deserialize)]
struct JwkSet {
    /// Each key is parsed separately, since a set may contain unsupported keys (RFC 7517 section
    /// 5).
    keys: Vec<serde_json::Value>,
}

/// The members of a JSON Web Key that are read. Private members are not among them.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Returns the usable keys of a set in order.
pub(super) fn read(json: &[u8]) -> Result<Vec<Key>, KeyError> {
    let set: JwkSet = serde_json::from_slice(json).map_err(|_| KeyError::NotASet)?;
    if set.keys.len() > KEYS_MAX {
        return Err(KeyError::TooMany);
    }
    let members = set.keys.into_iter();
    let members = members.filter_map(|member| serde_json::from_value(member).ok());
    let keys: Vec<Key> = members.filter_map(key).collect();
    if keys.is_empty() {
        return Err(KeyError::NothingUsable);
    }
    Ok(keys)
}

fn key(member: Jwk) -> Option<Key> {
    let is_to_verify = member.purpose.as_deref().is_none_or(|one| one == "sig")
        && member
            .key_ops
            .as_ref()
            .is_none_or(|all| all.iter().any(|one| one == "verify"));
    if !is_to_verify {
        return None;
    }
    let material = match (member.kty.as_str(), member.crv.as_deref()) {
        ("RSA", _) => Material::rsa(&bytes(member.n?)?, &bytes(member.e?)?)?,
        ("EC", Some(name)) => {
            let curve = Curve::named(name)?;
            let mut point = vec![UNCOMPRESSED];
            // RFC 7518 section 6.2.1.2: each coordinate has the full length, including leading zeros.
            for coordinate in [bytes(member.x?)?, bytes(member.y?)?] {
                if coordinate.len() != curve.coordinate_bytes() {
                    return None;
                }
                point.extend(coordinate);
            }
            Material::point(curve, &point)?
        }
        ("OKP", Some("Ed25519")) => Material::ed25519(&bytes(member.x?)?)?,
        // Other types are not used. This includes symmetric keys ("oct"), since a published key is
        // not secret.
        _ => return None,
    };
    let mut key = Key::new(member.kid, material);
    key.algorithm = match member.alg.as_deref() {
        None => None,
        // RFC 9864 introduces another name for the same algorithm.
        Some("Ed25519") => Some(Algorithm::EdDsa),
        // A key for another algorithm, such as PS256, is not used.
        Some(name) => Some(Algorithm::named(name)?),
    };
    let is_meant = key.algorithm.is_none_or(|only| key.accepts_algorithm(only));
    is_meant.then_some(key)
}

fn bytes(text: String) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
