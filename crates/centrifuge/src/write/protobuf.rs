//! Protobuf encoding. The length of a message precedes it, so the length is computed first, from
//! the same list of fields. This costs a few additions per field and no buffer.

use super::fields::{Fields, Message};
use crate::{DeltaKind, PublicationData};

const VARINT: u32 = 0;
const LENGTH: u32 = 2;

/// Appends a length-prefixed message.
pub(crate) fn delimited(out: &mut Vec<u8>, message: &impl Message) {
    let length = size(message);
    out.reserve(length + varint_size(length as u64));
    put(out, length as u64);
    message.write(&mut Writing { out });
}

/// Appends fields without a message around them.
pub(super) fn write(out: &mut Vec<u8>, fields: impl FnOnce(&mut Writing<'_>)) {
    fields(&mut Writing { out });
}

/// Returns the encoded size of fields.
pub(super) fn count(fields: impl FnOnce(&mut Counting)) -> usize {
    let mut counted = Counting { bytes: 0 };
    fields(&mut counted);
    counted.bytes
}

/// Appends the beginning of a reply, which ends before the fields of its result. The caller then appends further result
/// fields with a total of `more` bytes, and finally the returned bytes, which contain the fields of `result`.
pub(super) fn open(
    out: &mut Vec<u8>,
    id: u32,
    number: u32,
    result: &impl Message,
    more: usize,
) -> Vec<u8> {
    let mut rest = Vec::new();
    result.write(&mut Writing { out: &mut rest });
    let id_bytes = count(|fields| fields.number(1, id.into()));
    let length = rest.len() + more;
    put(out, (id_bytes + field_size(length)) as u64);
    let mut fields = Writing { out };
    fields.number(1, id.into());
    fields.varint(key(number, LENGTH));
    fields.varint(length as u64);
    rest
}

/// Returns the encoded size of a message.
fn size(message: &impl Message) -> usize {
    let mut counted = Counting { bytes: 0 };
    message.write(&mut counted);
    counted.bytes
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        // Writes the lower seven bits with the continuation bit.
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

const fn varint_size(value: u64) -> usize {
    // Seven bits per byte; zero needs one byte as well.
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

const fn key(number: u32, kind: u32) -> u64 {
    ((number << 3) | kind) as u64
}

/// Returns the encoded size of a field whose number is less than 16 and whose value has `length` bytes.
const fn field_size(length: usize) -> usize {
    1 + varint_size(length as u64) + length
}

/// Receives the primitive parts of a message: writes them or counts their size.
trait Parts {
    fn varint(&mut self, value: u64);
    fn raw(&mut self, bytes: &[u8]);
    /// Adds a length-prefixed message.
    fn nested(&mut self, message: &impl Message);

    fn number(&mut self, number: u32, value: u64) {
        if value != 0 {
            self.varint(key(number, VARINT));
            self.varint(value);
        }
    }

    /// Adds bytes, even if empty.
    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.varint(key(number, LENGTH));
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }
}

pub(super) struct Writing<'o> {
    out: &'o mut Vec<u8>,
}

pub(super) struct Counting {
    bytes: usize,
}

impl Parts for Writing<'_> {
    fn varint(&mut self, value: u64) {
        put(self.out, value);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn nested(&mut self, message: &impl Message) {
        put(self.out, size(message) as u64);
        message.write(self);
    }
}

impl Parts for Counting {
    fn varint(&mut self, value: u64) {
        self.bytes += varint_size(value);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
    }

    fn nested(&mut self, message: &impl Message) {
        let length = size(message);
        self.bytes += varint_size(length as u64) + length;
    }
}

impl<P: Parts> Fields for P {
    fn text(&mut self, number: u32, _name: &'static str, value: &str) {
        if !value.is_empty() {
            self.bytes(number, value.as_bytes());
        }
    }

    fn unsigned(&mut self, number: u32, _name: &'static str, value: u64) {
        self.number(number, value);
    }

    fn signed(&mut self, number: u32, _name: &'static str, value: i64) {
        // Two's complement: negative numbers take ten bytes.
        self.number(number, value as u64);
    }

    fn flag(&mut self, number: u32, _name: &'static str, value: bool) {
        self.number(number, value.into());
    }

    fn payload(
        &mut self,
        number: u32,
        _name: &'static str,
        value: PublicationData<'_>,
        _delta: DeltaKind,
    ) {
        let bytes = value.bytes();
        if !bytes.is_empty() {
            self.bytes(number, bytes);
        }
    }

    fn message(&mut self, number: u32, _name: &'static str, value: &impl Message) {
        self.varint(key(number, LENGTH));
        self.nested(value);
    }

    fn messages(&mut self, number: u32, name: &'static str, values: &[impl Message]) {
        for value in values {
            self.message(number, name, value);
        }
    }

    // A map entry is a message with two fields. Both are written even if they are empty, because some clients do not
    // treat a missing field as empty.

    fn texts(&mut self, number: u32, _name: &'static str, entries: &[(&str, &str)]) {
        for (name, value) in entries {
            self.varint(key(number, LENGTH));
            self.varint((field_size(name.len()) + field_size(value.len())) as u64);
            self.bytes(1, name.as_bytes());
            self.bytes(2, value.as_bytes());
        }
    }

    fn map(&mut self, number: u32, _name: &'static str, entries: &[(&str, impl Message)]) {
        for (name, value) in entries {
            self.varint(key(number, LENGTH));
            self.varint((field_size(name.len()) + field_size(size(value))) as u64);
            self.bytes(1, name.as_bytes());
            self.message(2, "value", value);
        }
    }
}
