//! `veche.hash` and `veche.hmac`: digests, and digests with a key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use mlua::{Lua, MultiValue, Table};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use super::argument::Arguments;
use super::{fault, go_on};

type Hash = fn(&[u8]) -> mlua::Result<Vec<u8>>;
type KeyedHash = fn(&[u8], &[u8]) -> mlua::Result<Vec<u8>>;

/// Bytes hashed between two checks whether the run must end. Hashing them takes a fraction of a
/// millisecond.
const PART_BYTES: usize = 128 << 10;

/// Calls `take` with each part of the data. Stops with an error if the run must end.
fn in_parts(data: &[u8], mut take: impl FnMut(&[u8])) -> mlua::Result<()> {
    data.chunks(PART_BYTES).try_for_each(|part| {
        go_on()?;
        take(part);
        Ok(())
    })
}

fn digest<H: Digest>(data: &[u8]) -> mlua::Result<Vec<u8>> {
    let mut hash = H::new();
    in_parts(data, |part| hash.update(part))?;
    Ok(hash.finalize().to_vec())
}

fn keyed<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> mlua::Result<Vec<u8>> {
    // RFC 2104 allows keys of any length.
    let mut mac =
        <M as KeyInit>::new_from_slice(key).map_err(|_| fault("the key can't be used"))?;
    in_parts(data, |part| mac.update(part))?;
    Ok(mac.finalize().into_bytes().to_vec())
}

pub(super) fn hash(lua: &Lua) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let hashes: [(&str, &'static str, Hash); 3] = [
        ("sha256", "hash.sha256", digest::<Sha256>),
        ("sha1", "hash.sha1", digest::<Sha1>),
        ("md5", "hash.md5", digest::<Md5>),
    ];
    for (name, function, hash) in hashes {
        let digest = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            let form = Form::of(&arguments, 2)?;
            lua.create_string(form.write(hash(&arguments.bytes(1)?)?))
        })?;
        module.set(name, digest)?;
    }
    let crc32 = lua.create_function(|_, values: MultiValue| {
        let arguments = Arguments::new("hash.crc32", values);
        let mut hash = crc32fast::Hasher::new();
        in_parts(&arguments.bytes(1)?, |part| hash.update(part))?;
        Ok(f64::from(hash.finalize()))
    })?;
    module.set("crc32", crc32)?;
    Ok(module)
}

pub(super) fn hmac(lua: &Lua) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let hashes: [(&str, &'static str, KeyedHash); 2] = [
        ("sha256", "hmac.sha256", keyed::<Hmac<Sha256>>),
        ("sha1", "hmac.sha1", keyed::<Hmac<Sha1>>),
    ];
    for (name, function, hash) in hashes {
        let digest = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            let form = Form::of(&arguments, 3)?;
            let digest = hash(&arguments.bytes(1)?, &arguments.bytes(2)?)?;
            lua.create_string(form.write(digest))
        })?;
        module.set(name, digest)?;
    }
    let equals = lua.create_function(|_, values: MultiValue| {
        let arguments = Arguments::new("hmac.equals", values);
        let (one, other) = (arguments.bytes(1)?, arguments.bytes(2)?);
        if one.len() != other.len() {
            return Ok(false);
        }
        let mut is_equal = Choice::from(1);
        let mut rest = &other[..];
        in_parts(&one, |part| {
            let (same, behind) = rest.split_at(part.len());
            is_equal &= part.ct_eq(same);
            rest = behind;
        })?;
        Ok(bool::from(is_equal))
    })?;
    module.set("equals", equals)?;
    Ok(module)
}

/// The form in which a digest is returned.
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
