//! `veche.hash` and `veche.hmac`: digests, and digests with a key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;
use mlua::{Lua, MultiValue, Table};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::argument::Arguments;
use super::fault;

type Hash = fn(&[u8]) -> Vec<u8>;
type KeyedHash = fn(&[u8], &[u8]) -> Option<Vec<u8>>;

pub(super) fn hash(lua: &Lua) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let hashes: [(&str, &'static str, Hash); 3] = [
        ("sha256", "hash.sha256", |data| {
            Sha256::digest(data).to_vec()
        }),
        ("sha1", "hash.sha1", |data| Sha1::digest(data).to_vec()),
        ("md5", "hash.md5", |data| Md5::digest(data).to_vec()),
    ];
    for (name, function, hash) in hashes {
        let digest = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            let form = Form::of(&arguments, 2)?;
            lua.create_string(form.write(hash(&arguments.bytes(1)?)))
        })?;
        module.set(name, digest)?;
    }
    let crc32 = lua.create_function(|_, values: MultiValue| {
        let arguments = Arguments::new("hash.crc32", values);
        Ok(f64::from(crc32fast::hash(&arguments.bytes(1)?)))
    })?;
    module.set("crc32", crc32)?;
    Ok(module)
}

pub(super) fn hmac(lua: &Lua) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let hashes: [(&str, &'static str, KeyedHash); 2] = [
        ("sha256", "hmac.sha256", |key, data| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
            mac.update(data);
            Some(mac.finalize().into_bytes().to_vec())
        }),
        ("sha1", "hmac.sha1", |key, data| {
            let mut mac = Hmac::<Sha1>::new_from_slice(key).ok()?;
            mac.update(data);
            Some(mac.finalize().into_bytes().to_vec())
        }),
    ];
    for (name, function, hash) in hashes {
        let digest = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            let form = Form::of(&arguments, 3)?;
            let digest = hash(&arguments.bytes(1)?, &arguments.bytes(2)?);
            // RFC 2104 allows keys of any length.
            let digest = digest.ok_or_else(|| fault("the key can't be used"))?;
            lua.create_string(form.write(digest))
        })?;
        module.set(name, digest)?;
    }
    let equals = lua.create_function(|_, values: MultiValue| {
        let arguments = Arguments::new("hmac.equals", values);
        let is_equal = arguments.bytes(1)?.ct_eq(&arguments.bytes(2)?);
        Ok(bool::from(is_equal))
    })?;
    module.set("equals", equals)?;
    Ok(module)
}

/// How a digest is written.
#[derive(Clone, Copy)]
enum Form {
    Hex,
    Base64,
    Raw,
}

impl Form {
    fn of(arguments: &Arguments, number: usize) -> mlua::Result<Self> {
        if arguments.at(number).is_nil() {
            return Ok(Self::Hex);
        }
        match &*arguments.bytes(number)? {
            b"hex" => Ok(Self::Hex),
            b"base64" => Ok(Self::Base64),
            b"raw" => Ok(Self::Raw),
            _ => Err(arguments.bad(number, "\"hex\", \"base64\" or \"raw\" expected")),
        }
    }

    fn write(self, digest: Vec<u8>) -> Vec<u8> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        match self {
            Self::Hex => digest
                .iter()
                .flat_map(|byte| [byte >> 4, byte & 15])
                .map(|digit| DIGITS[usize::from(digit)])
                .collect(),
            Self::Base64 => STANDARD.encode(digest).into_bytes(),
            Self::Raw => digest,
        }
    }
}
