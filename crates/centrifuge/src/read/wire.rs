//! The Protobuf wire format: numbers, and length-prefixed bytes. A declared length causes no allocation, and nothing is
//! decoded recursively: the caller decodes the bytes of a field.

use crate::MalformedMessage;

/// The borrowed value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    /// A varint: integers and booleans.
    Varint(u64),
    /// Four or eight bytes. No known field has this type.
    Fixed,
    /// Texts, bytes, messages, map entries.
    Bytes(&'a [u8]),
}

pub(super) fn delimited<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], MalformedMessage> {
    let length = varint(rest)?;
    let length = usize::try_from(length).map_err(|_| MalformedMessage::Truncated)?;
    take(rest, length)
}

/// Reads a field, its number and value, from the front of `rest`.
pub(super) fn field<'a>(rest: &mut &'a [u8]) -> Result<(u32, FieldValue<'a>), MalformedMessage> {
    let key = u32::try_from(varint(rest)?).map_err(|_| MalformedMessage::Protobuf)?;
    let number = key >> 3;
    if number == 0 {
        return Err(MalformedMessage::Protobuf);
    }
    let value = match key & 7 {
        0 => FieldValue::Varint(varint(rest)?),
        1 => take(rest, 8).map(|_| FieldValue::Fixed)?,
        2 => FieldValue::Bytes(delimited(rest)?),
        5 => take(rest, 4).map(|_| FieldValue::Fixed)?,
        // The protocol does not use wire types 3 and 4 (groups); 6 and 7 are undefined.
        _ => return Err(MalformedMessage::Protobuf),
    };
    Ok((number, value))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], MalformedMessage> {
    let (taken, left) = rest
        .split_at_checked(length)
        .ok_or(MalformedMessage::Truncated)?;
    *rest = left;
    Ok(taken)
}

/// Reads a varint from the front of `rest`: seven bits per byte, the lowest first; the eighth bit is set if more bytes
/// follow.
fn varint(rest: &mut &[u8]) -> Result<u64, MalformedMessage> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, left) = rest.split_first().ok_or(MalformedMessage::Truncated)?;
        *rest = left;
        // The tenth byte has room for one bit.
        if shift == 63 && byte > 1 {
            return Err(MalformedMessage::Protobuf);
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(MalformedMessage::Protobuf)
}

impl<'a> FieldValue<'a> {
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Varint(_) | Self::Fixed => None,
        }
    }

    pub(super) fn varint(self) -> Option<u64> {
        match self {
            Self::Varint(value) => Some(value),
            Self::Fixed | Self::Bytes(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wire: &[u8], expected: Result<(u32, FieldValue<'_>), MalformedMessage>) {
        let mut rest = wire;
        assert_eq!(field(&mut rest), expected, "{wire:02x?}");
        if expected.is_ok() {
            assert_eq!(rest, b"", "{wire:02x?}");
            // The error for each truncated input says that the input is truncated.
            for end in 0..wire.len() {
                assert_eq!(field(&mut &wire[..end]), Err(MalformedMessage::Truncated));
            }
        }
    }

    #[test]
    fn fields_have_a_number_and_a_value() {
        check(&[0x08, 0x00], Ok((1, FieldValue::Varint(0))));
        check(&[0x08, 0x96, 0x01], Ok((1, FieldValue::Varint(150))));
        check(&[0x12, 0x02, b'h', b'i'], Ok((2, FieldValue::Bytes(b"hi"))));
        check(&[0x12, 0x00], Ok((2, FieldValue::Bytes(b""))));
        check(&[0x0d, 1, 2, 3, 4], Ok((1, FieldValue::Fixed)));
        check(&[0x09, 1, 2, 3, 4, 5, 6, 7, 8], Ok((1, FieldValue::Fixed)));
        // The maximum field number.
        check(
            &[0xf8, 0xff, 0xff, 0xff, 0x0f, 0x01],
            Ok((536_870_911, FieldValue::Varint(1))),
        );
    }

    #[test]
    fn numbers_may_be_longer_than_they_need_and_no_longer_than_ten_bytes() {
        check(&[0x08, 0x80, 0x00], Ok((1, FieldValue::Varint(0))));
        let mut wire = [0xff; 11];
        wire[0] = 0x08;
        wire[10] = 0x01;
        check(&wire, Ok((1, FieldValue::Varint(u64::MAX))));
        wire[10] = 0x02;
        check(&wire, Err(MalformedMessage::Protobuf));
        wire[10] = 0xff;
        check(&wire, Err(MalformedMessage::Protobuf));
    }

    #[test]
    fn invalid_fields_are_rejected() {
        // Field number 0.
        check(&[0x00, 0x00], Err(MalformedMessage::Protobuf));
        // Wire types 3 and 4 (groups) and 6 and 7 (undefined) are refused.
        for kind in [3, 4, 6, 7] {
            check(&[0x08 | kind, 0x00], Err(MalformedMessage::Protobuf));
        }
        // A field key longer than 32 bits.
        check(
            &[0x88, 0x80, 0x80, 0x80, 0x10, 0],
            Err(MalformedMessage::Protobuf),
        );
        // Lengths beyond the end of the input, up to the largest possible one.
        check(&[0x12, 0x03, b'h', b'i'], Err(MalformedMessage::Truncated));
        let mut wire = [0xff; 11];
        wire[0] = 0x12;
        wire[10] = 0x01;
        check(&wire, Err(MalformedMessage::Truncated));
    }
}
