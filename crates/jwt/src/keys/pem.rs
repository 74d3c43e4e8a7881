//! PEM public keys: SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7).

use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_SIG_ED25519,
};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::{Curve, Key, KeyError, Material};

/// Parses the keys of a file in order.
pub(super) fn read(text: &[u8]) -> Result<Vec<Key>, KeyError> {
    let mut keys = Vec::new();
    for (index, block) in Pem::iter_from_buffer(text).enumerate() {
        let number = index + 1;
        let block = block.map_err(|_| KeyError::Unreadable(number))?;
        if block.label.ends_with("PRIVATE KEY") {
            return Err(KeyError::Private);
        }
        if block.label != "PUBLIC KEY" {
            continue;
        }
        let (rest, info) = SubjectPublicKeyInfo::from_der(&block.contents)
            .map_err(|_| KeyError::Unreadable(number))?;
        if !rest.is_empty() {
            return Err(KeyError::Unreadable(number));
        }
        let material = material(&info).ok_or(KeyError::Unsupported(number))?;
        keys.push(Key::new(None, material));
    }
    if keys.is_empty() {
        return Err(KeyError::NoPem);
    }
    Ok(keys)
}

fn material(info: &SubjectPublicKeyInfo<'_>) -> Option<Material> {
    let bits = &info.subject_public_key.data;
    let kind = &info.algorithm.algorithm;
    if *kind == OID_SIG_ED25519 {
        return Material::ed25519(bits);
    }
    if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY {
        let named = info.algorithm.parameters.as_ref()?.as_oid().ok()?;
        let known = [
            (OID_EC_P256, Curve::P256),
            (OID_NIST_EC_P384, Curve::P384),
            (OID_NIST_EC_P521, Curve::P521),
        ];
        let (_, curve) = known.into_iter().find(|(oid, _)| *oid == named)?;
        return Material::point(curve, bits);
    }
    match info.parsed().ok()? {
        PublicKey::RSA(key) => Material::rsa(key.modulus, key.exponent),
        _ => None,
    }
}
