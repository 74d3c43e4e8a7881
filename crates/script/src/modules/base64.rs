//! Implements `veche.base64`: the encodings of RFC 4648, sections 4 and 5.

use std::rc::Rc;

use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _};
use mlua::{Lua, MultiValue, Table, Value};

use super::argument::Arguments;
use super::{fault, go_on};
use crate::host_context::HostContext;

/// The longest encoded text in bytes.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// The number of bytes encoded, or of characters decoded, between two checks of the CPU budget. It
/// is a multiple of three and of four, so that each part can be converted alone.
const PART_BYTES: usize = 12 << 14;

const STRICT: GeneralPurpose = GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new());

/// The URL alphabet, written without padding and read with or without.
const URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Encodes with the standard alphabet and padding.
pub(super) fn standard(bytes: &[u8]) -> String {
    STRICT.encode(bytes)
}

pub(super) fn module(lua: &Lua, context: &Rc<HostContext>) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let encoders = [
        ("encode", "base64.encode", STRICT),
        ("encode_url", "base64.encode_url", URL),
    ];
    for (name, function, engine) in encoders {
        let host = Rc::clone(context);
        let encode = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            let data = arguments.bytes(1)?;
            if data.len() > TEXT_BYTES_MAX / 4 * 3 {
                return Err(fault(format!(
                    "{function}: the text would be longer than 16 MiB"
                )));
            }
            let text_bytes = data.len().div_ceil(3) * 4;
            check_room(&host, function, text_bytes)?;
            let mut text = String::with_capacity(text_bytes);
            for part in data.chunks(PART_BYTES) {
                go_on()?;
                engine.encode_string(part, &mut text);
            }
            lua.create_string(text)
        })?;
        module.set(name, encode)?;
    }
    let decoders = [
        ("decode", "base64.decode", STRICT),
        ("decode_url", "base64.decode_url", URL),
    ];
    for (name, function, engine) in decoders {
        let host = Rc::clone(context);
        let decode = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(function, values);
            let text = arguments.bytes(1)?;
            if text.len() > TEXT_BYTES_MAX {
                return Err(fault(format!("{function}: the text is longer than 16 MiB")));
            }
            check_room(&host, function, text.len() / 4 * 3)?;
            // Base64 often comes from clients. So an invalid text is not a script error but a result: nil and the reason.
            Ok(match decode_in_parts(&engine, &text)? {
                Ok(data) => (Value::String(lua.create_string(data)?), None),
                Err(error) => (Value::Nil, Some(error.to_string())),
            })
        })?;
        module.set(name, decode)?;
    }
    Ok(module)
}

/// Checks that the VM's limit leaves memory for a result twice: for the Lua string, and for the buffer outside of the VM
/// in which the result is built.
///
/// # Errors
/// Too little memory is left.
fn check_room(host: &HostContext, function: &str, result_bytes: usize) -> mlua::Result<()> {
    match host.has_room_for(2 * result_bytes) {
        true => Ok(()),
        false => Err(fault(format!("{function}: not enough memory"))),
    }
}

/// Decodes a text in parts, and checks between the parts whether the run may continue.
fn decode_in_parts(
    engine: &GeneralPurpose,
    text: &[u8],
) -> mlua::Result<Result<Vec<u8>, DecodeError>> {
    let mut data = Vec::with_capacity(text.len() / 4 * 3 + 3);
    for (place, part) in text.chunks(PART_BYTES).enumerate() {
        go_on()?;
        // Padding is allowed only in the last part, since padding ends a text.
        let is_last = (place + 1) * PART_BYTES >= text.len();
        let before = place * PART_BYTES;
        if !is_last && part.ends_with(b"=") {
            let at = part.iter().position(|&byte| byte == b'=').unwrap_or(0);
            return Ok(Err(DecodeError::InvalidByte(before + at, b'=')));
        }
        if let Err(error) = engine.decode_vec(part, &mut data) {
            return Ok(Err(placed(error, before)));
        }
    }
    Ok(Ok(data))
}

/// Adds a part's offset to the position in its error.
fn placed(error: DecodeError, before: usize) -> DecodeError {
    match error {
        DecodeError::InvalidByte(at, byte) => DecodeError::InvalidByte(before + at, byte),
        DecodeError::InvalidLastSymbol {
            offset,
            symbol,
            symbol_value,
        } => DecodeError::InvalidLastSymbol {
            offset: before + offset,
            symbol,
            symbol_value,
        },
        error => error,
    }
}
