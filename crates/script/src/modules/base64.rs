//! `veche.base64`: RFC 4648, sections 4 and 5.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use mlua::{Lua, MultiValue, Table, Value};

use super::argument::Arguments;

const STRICT: GeneralPurpose = GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new());

/// Written without padding, read with and without.
const URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// With the standard alphabet, padded.
pub(super) fn standard(bytes: &[u8]) -> String {
    STRICT.encode(bytes)
}

pub(super) fn module(lua: &Lua) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let encoders = [
        ("encode", "base64.encode", STRICT),
        ("encode_url", "base64.encode_url", URL),
    ];
    for (name, function, engine) in encoders {
        let encode = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            lua.create_string(engine.encode(&*arguments.bytes(1)?))
        })?;
        module.set(name, encode)?;
    }
    let decoders = [
        ("decode", "base64.decode", STRICT),
        ("decode_url", "base64.decode_url", URL),
    ];
    for (name, function, engine) in decoders {
        let decode = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            // Such texts come from clients: that one is wrong is no error of the script.
            Ok(match engine.decode(&*arguments.bytes(1)?) {
                Ok(data) => (Value::String(lua.create_string(data)?), None),
                Err(error) => (Value::Nil, Some(error.to_string())),
            })
        })?;
        module.set(name, decode)?;
    }
    Ok(module)
}
