//! Writes rows as JSON, for clients and watchers.
//!
//! Bytes are written as Base64, since JSON has only text. Integers are written in full. For readers that parse numbers as
//! 64-bit floating point, such as Lua and browsers, integers beyond 2^53 can be written as strings.

use std::io::Write as _;

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;

use super::cell::Cell;
use super::schema::{Schema, Type};
use super::watch::WatchEvent;

/// An `f64` represents every integer up to this absolute value exactly.
const EXACT_MAX: u128 = 1 << 53;

/// Writes a row as an object: the key, then the other columns in order of their names, with null for missing values. With
/// `is_exact`, integers beyond 2^53 are written as strings.
pub(super) fn row<'a>(
    out: &mut Vec<u8>,
    schema: &Schema,
    value_of: impl Fn(usize) -> Cell<'a>,
    is_exact: bool,
) {
    let mut separator = b'{';
    for (place, column) in schema.visible().iter().enumerate() {
        out.push(separator);
        separator = b',';
        // Names of columns have no characters that need escaping.
        out.push(b'"');
        out.extend_from_slice(column.name.as_bytes());
        out.extend_from_slice(b"\":");
        value(out, &column.kind, value_of(place), is_exact);
    }
    out.push(b'}');
}

pub(super) fn value(out: &mut Vec<u8>, kind: &Type, cell: Cell<'_>, is_exact: bool) {
    match (kind, cell) {
        (_, Cell::Null) => out.extend_from_slice(b"null"),
        (Type::Bool, Cell::Bits(bits)) => {
            out.extend_from_slice(if bits == 0 { b"false" } else { b"true" });
        }
        (Type::Enum(words), Cell::Bits(bits)) => string(out, words[bits as usize].as_bytes()),
        (kind, Cell::Bits(bits)) => match kind.whole(bits) {
            Some(whole) => {
                let mut buffer = itoa::Buffer::new();
                let digits = buffer.format(whole);
                if is_exact && whole.unsigned_abs() > EXACT_MAX {
                    string(out, digits.as_bytes());
                } else {
                    out.extend_from_slice(digits.as_bytes());
                }
            }
            None => number(out, kind.number(bits)),
        },
        (Type::Bytes(_), Cell::Text(bytes)) => base64(out, bytes),
        (_, Cell::Text(text)) => string(out, text),
    }
}

fn number(out: &mut Vec<u8>, value: f64) {
    let is_plain = value == 0.0 || (1e-5..1e17).contains(&value.abs());
    let written = match is_plain {
        true => write!(out, "{value}"),
        false => write!(out, "{value:e}"),
    };
    written.expect("writing to a vector can't fail");
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut from = 0;
    for (at, &byte) in text.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text[from..at]);
        from = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
    }
    out.extend_from_slice(&text[from..]);
    out.push(b'"');
}

fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let mut writer = EncoderWriter::new(out, &STANDARD);
    writer
        .write_all(bytes)
        .expect("writing to a vector can't fail");
    let out = writer.finish().expect("writing to a vector can't fail");
    out.push(b'"');
}

/// The schema, and a function that returns the row's value of a column.
pub(super) type RowValues<'a, 'b> = (&'b Schema, &'b dyn Fn(usize) -> Cell<'a>);

/// Writes a change event. `row_values` has the row's new values; `None` for an event of the whole table.
pub(super) fn event(out: &mut Vec<u8>, event: WatchEvent, row_values: Option<RowValues<'_, '_>>) {
    open(out, event);
    if let Some((schema, value_of)) = row_values {
        out.extend_from_slice(b",\"key\":");
        value(out, &schema.columns[0].kind, value_of(0), true);
        out.extend_from_slice(b",\"row\":");
        row(out, schema, value_of, true);
    }
    out.push(b'}');
}

/// Writes a change event for a removed row, with the key.
pub(super) fn gone(out: &mut Vec<u8>, event: WatchEvent, schema: &Schema, key: Cell<'_>) {
    open(out, event);
    out.extend_from_slice(b",\"key\":");
    value(out, &schema.columns[0].kind, key, true);
    out.push(b'}');
}

fn open(out: &mut Vec<u8>, event: WatchEvent) {
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(event.name().as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: &Type, cell: Cell<'_>, is_exact: bool) -> String {
        let mut out = Vec::new();
        value(&mut out, kind, cell, is_exact);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn values_are_json() {
        let text = Type::String(99);
        for (kind, cell, expected) in [
            (Type::Bool, Cell::Bits(1), "true"),
            (Type::Signed(8), Cell::Bits(-5_i64 as u64), "-5"),
            (
                Type::Unsigned(64),
                Cell::Bits(u64::MAX),
                "18446744073709551615",
            ),
            (Type::F64, Cell::Bits(0.5_f64.to_bits()), "0.5"),
            (Type::F64, Cell::Bits(1e300_f64.to_bits()), "1e300"),
            (Type::F64, Cell::Bits(1e-9_f64.to_bits()), "1e-9"),
            (Type::F64, Cell::Null, "null"),
            (
                text.clone(),
                Cell::Text("дя\"\\\n\u{1}".as_bytes()),
                "\"дя\\\"\\\\\\n\\u0001\"",
            ),
            (Type::Bytes(9), Cell::Text(b""), "\"\""),
            (Type::Bytes(9), Cell::Text(b"f"), "\"Zg==\""),
            (Type::Bytes(9), Cell::Text(b"fo"), "\"Zm8=\""),
            (Type::Bytes(9), Cell::Text(b"foo"), "\"Zm9v\""),
            (Type::Bytes(9), Cell::Text(b"foob"), "\"Zm9vYg==\""),
        ] {
            assert_eq!(written(&kind, cell, false), expected);
        }
        let large = Cell::Bits(1 << 60);
        assert_eq!(
            written(&Type::Unsigned(64), large, true),
            "\"1152921504606846976\""
        );
    }
}
