//! Writes rows as CSV (RFC 4180): one record per row, ending with CR and LF.
//!
//! A missing value is written as an empty field, an empty string as a pair of quotes. Bytes are written as Base64, numbers and
//! booleans as in JSON.

use super::cell::Cell;
use super::schema::{Schema, Type};
use super::{Row, json};

impl Schema {
    /// Writes the header: the name of the key, then the names of the other columns.
    pub fn write_csv_names(&self, out: &mut Vec<u8>) {
        record(out, self.visible().len(), |out, place| {
            // Names of columns have no characters that need quotes.
            out.extend_from_slice(self.columns[place].name.as_bytes());
        });
    }
}

impl Row<'_> {
    /// Writes the row as a record: the key, then the other columns in the order of [`Schema::write_csv_names`].
    pub fn write_csv(&self, out: &mut Vec<u8>) {
        let columns = self.table.schema.visible();
        record(out, columns.len(), |out, place| {
            field(out, &columns[place].kind, self.get(place));
        });
    }
}

fn record(out: &mut Vec<u8>, fields: usize, mut write: impl FnMut(&mut Vec<u8>, usize)) {
    for place in 0..fields {
        if place > 0 {
            out.push(b',');
        }
        write(out, place);
    }
    out.extend_from_slice(b"\r\n");
}

fn field(out: &mut Vec<u8>, kind: &Type, cell: Cell<'_>) {
    match (kind, cell) {
        (_, Cell::Null) => {}
        (Type::String(_), Cell::Text(value)) => text(out, value),
        (Type::Enum(words), Cell::Bits(bits)) => text(out, words[bits as usize].as_bytes()),
        (kind, cell) => json::value(out, kind, cell, false),
    }
}

fn text(out: &mut Vec<u8>, value: &[u8]) {
    let is_special = |byte: &u8| matches!(byte, b'"' | b',' | b'\r' | b'\n');
    if !value.is_empty() && !value.iter().any(is_special) {
        return out.extend_from_slice(value);
    }
    out.push(b'"');
    for (number, part) in value.split(|&byte| byte == b'"').enumerate() {
        if number > 0 {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(part);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: &str, cell: Cell<'_>) -> String {
        let mut out = Vec::new();
        field(&mut out, &Type::parse(kind).expect("a type"), cell);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        for (kind, cell, expected) in [
            ("string", Cell::Text(b"plain; \ttext"), "plain; \ttext"),
            ("string", Cell::Text("дя".as_bytes()), "дя"),
            ("string", Cell::Text(b""), "\"\""),
            ("string", Cell::Null, ""),
            ("string", Cell::Text(b"a,b"), "\"a,b\""),
            (
                "string",
                Cell::Text(b"\"a\" \"\""),
                "\"\"\"a\"\" \"\"\"\"\"",
            ),
            ("string", Cell::Text(b"a\r\nb"), "\"a\r\nb\""),
            ("bytes", Cell::Text(b"fo"), "\"Zm8=\""),
            ("bool", Cell::Bits(1), "true"),
            ("enum(a\"b,c)", Cell::Bits(0), "\"a\"\"b\""),
            ("enum(a,c)", Cell::Bits(1), "c"),
            ("u64", Cell::Bits(u64::MAX), "18446744073709551615"),
            ("i8", Cell::Bits(-5_i64 as u64), "-5"),
            ("f64", Cell::Bits(0.5_f64.to_bits()), "0.5"),
        ] {
            assert_eq!(written(kind, cell), expected, "{kind} {cell:?}");
        }
    }
}
