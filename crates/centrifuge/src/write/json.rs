//! Messages as JSON, on one line each.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::fields::{Fields, Message};
use crate::{DeltaKind, PublicationData};

/// Appends a message as a JSON object.
pub(crate) fn message<M: Message>(out: &mut Vec<u8>, message: &M) {
    out.push(b'{');
    message.write(&mut Object {
        out,
        is_first: true,
        keeps_zeros: M::KEEPS_ZEROS,
    });
    out.push(b'}');
}

/// Appends an entry of an object.
pub(super) fn entry(out: &mut Vec<u8>, key: &str, value: &impl Message) {
    string(&mut *out, key);
    out.push(b':');
    message(out, value)
}

/// Appends data; binary data as a base64 string.
pub(crate) fn data(out: &mut Vec<u8>, data: PublicationData<'_>, delta: DeltaKind) {
    match (data, delta) {
        (PublicationData::Binary(bytes), DeltaKind::Off | DeltaKind::Patch) => {
            base64(out, b"\"", bytes)
        }
        (PublicationData::Binary(bytes), DeltaKind::Whole) => {
            out.push(b'"');
            base64(out, b"\\\"", bytes);
            out.push(b'"');
        }
        (PublicationData::Json(text), DeltaKind::Off) => value(out, text),
        (PublicationData::Text(text), DeltaKind::Off)
        | (PublicationData::Json(text) | PublicationData::Text(text), DeltaKind::Patch) => {
            string(out, text);
        }
        // If the subscription uses deltas, the JSON form of whole data is wrapped in a JSON string. The quotes of a
        // text are then escaped once more.
        (PublicationData::Json(text), DeltaKind::Whole) => string(out, text),
        (PublicationData::Text(text), DeltaKind::Whole) => {
            out.push(b'"');
            string(Quoted(out), text);
            out.push(b'"');
        }
    }
}

impl PublicationData<'_> {
    /// Appends the data in the form that JSON clients get.
    pub fn write_json(self, out: &mut Vec<u8>) {
        data(out, self, DeltaKind::Off);
    }
}

/// Appends bytes as base64 between quotes.
fn base64(out: &mut Vec<u8>, quote: &[u8], bytes: &[u8]) {
    out.extend_from_slice(quote);
    let start = out.len();
    let length = base64::encoded_len(bytes.len(), true).expect("the bytes are in memory");
    out.resize(start + length, 0);
    STANDARD
        .encode_slice(bytes, &mut out[start..])
        .expect("the space was reserved before");
    out.extend_from_slice(quote);
}

/// Appends a JSON value without its line breaks, because a line break separates messages. Outside of strings, line
/// breaks are insignificant; within strings they are escaped. `\r` is removed too, because it ends a line of
/// server-sent events.
fn value(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn string(out: impl io::Write, text: &str) {
    // Memory writes can't fail, and any text is a valid JSON string.
    serde_json::to_writer(out, text).expect("text to memory");
}

/// Writes a JSON string within another JSON string: only the quotes and backslashes of the inner string have to be
/// escaped again.
struct Quoted<'o>(&'o mut Vec<u8>);

impl io::Write for Quoted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
            self.0.extend_from_slice(&rest[..at]);
            self.0.extend_from_slice(&[b'\\', rest[at]]);
            rest = &rest[at + 1..];
        }
        self.0.extend_from_slice(rest);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An object that is not closed yet.
struct Object<'o> {
    out: &'o mut Vec<u8>,
    is_first: bool,
    keeps_zeros: bool,
}

impl Object<'_> {
    /// Writes a name defined by the protocol, which needs no escapes.
    fn name(&mut self, name: &'static str) {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// Writes a user-defined name.
    fn key(&mut self, key: &str) {
        self.separate();
        string(&mut *self.out, key);
        self.out.push(b':');
    }

    fn separate(&mut self) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
    }

    /// Writes an object with user-defined names.
    fn entries<V>(
        &mut self,
        name: &'static str,
        entries: &[(&str, V)],
        mut write: impl FnMut(&mut Vec<u8>, &V),
    ) {
        if entries.is_empty() && !self.keeps_zeros {
            return;
        }
        self.name(name);
        self.out.push(b'{');
        let mut inner = Object {
            out: self.out,
            is_first: true,
            keeps_zeros: false,
        };
        for (key, value) in entries {
            inner.key(key);
            write(inner.out, value);
        }
        self.out.push(b'}');
    }
}

impl Fields for Object<'_> {
    fn text(&mut self, _number: u32, name: &'static str, value: &str) {
        if !value.is_empty() || self.keeps_zeros {
            self.name(name);
            string(&mut *self.out, value);
        }
    }

    fn unsigned(&mut self, _number: u32, name: &'static str, value: u64) {
        if value != 0 || self.keeps_zeros {
            self.name(name);
            let mut digits = itoa::Buffer::new();
            self.out.extend_from_slice(digits.format(value).as_bytes());
        }
    }

    fn signed(&mut self, _number: u32, name: &'static str, value: i64) {
        if value != 0 || self.keeps_zeros {
            self.name(name);
            let mut digits = itoa::Buffer::new();
            self.out.extend_from_slice(digits.format(value).as_bytes());
        }
    }

    fn flag(&mut self, _number: u32, name: &'static str, value: bool) {
        if value || self.keeps_zeros {
            self.name(name);
            self.out.extend_from_slice(match value {
                true => b"true".as_slice(),
                false => b"false",
            });
        }
    }

    fn payload(
        &mut self,
        _number: u32,
        name: &'static str,
        value: PublicationData<'_>,
        delta: DeltaKind,
    ) {
        if matches!(value, PublicationData::Json("")) {
            return;
        }
        self.name(name);
        data(self.out, value, delta);
    }

    fn message(&mut self, _number: u32, name: &'static str, value: &impl Message) {
        self.name(name);
        message(self.out, value);
    }

    fn messages(&mut self, _number: u32, name: &'static str, values: &[impl Message]) {
        if values.is_empty() && !self.keeps_zeros {
            return;
        }
        self.name(name);
        self.out.push(b'[');
        for (place, value) in values.iter().enumerate() {
            if place > 0 {
                self.out.push(b',');
            }
            message(self.out, value);
        }
        self.out.push(b']');
    }

    fn texts(&mut self, _number: u32, name: &'static str, entries: &[(&str, &str)]) {
        self.entries(name, entries, |out, value| string(out, value));
    }

    fn map(&mut self, _number: u32, name: &'static str, entries: &[(&str, impl Message)]) {
        self.entries(name, entries, |out, value| message(out, value));
    }
}
