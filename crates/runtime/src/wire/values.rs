//! Encodes and decodes values of databases as bytes. Each value is preceded by a tag with its type, and texts are not escaped.

use veche_calls::mysql::MysqlValue;
use veche_calls::redis::RedisValue;

/// The types of values, as in the table of `docs/reference/runtime-protocol.md`.
mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    /// The tag of a number. It is followed by a 64-bit float, least significant byte first.
    pub(super) const NUMBER: u8 = 3;
    /// The tag of a byte string. It is followed by the length in 4 bytes, then the bytes.
    pub(super) const BYTES: u8 = 4;
    /// The tag of a list. It is followed by the number of values in 4 bytes, then the values.
    pub(super) const LIST: u8 = 5;
    /// The tag of a map. It is followed by the number of pairs in 4 bytes, then the key and value of each.
    pub(super) const MAP: u8 = 6;
    /// The tag of an error, which may be the result of one of several commands. It is encoded like [`BYTES`].
    pub(super) const ERROR: u8 = 7;
}

/// Appends the encoding of a value of a row.
pub(super) fn put(into: &mut Vec<u8>, value: &MysqlValue) {
    match value {
        MysqlValue::Null => into.push(tag::NULL),
        MysqlValue::Boolean(value) => put_boolean(into, *value),
        MysqlValue::Number(number) => put_number(into, *number),
        MysqlValue::Bytes(bytes) => put_bytes(into, tag::BYTES, bytes),
    }
}

/// Appends the encoding of a value of Redis.
pub(super) fn put_redis(into: &mut Vec<u8>, value: &RedisValue) {
    match value {
        RedisValue::Nil => into.push(tag::NULL),
        RedisValue::Boolean(value) => put_boolean(into, *value),
        RedisValue::Number(number) => put_number(into, *number),
        RedisValue::Bytes(bytes) => put_bytes(into, tag::BYTES, bytes),
        RedisValue::List(values) => {
            put_count(into, tag::LIST, values.len());
            for value in values {
                put_redis(into, value);
            }
        }
        RedisValue::Map(pairs) => {
            put_count(into, tag::MAP, pairs.len());
            for (key, value) in pairs {
                put_redis(into, key);
                put_redis(into, value);
            }
        }
        RedisValue::Error(why) => put_bytes(into, tag::ERROR, why.as_bytes()),
    }
}

fn put_boolean(into: &mut Vec<u8>, value: bool) {
    into.push(if value { tag::TRUE } else { tag::FALSE });
}

fn put_number(into: &mut Vec<u8>, number: f64) {
    into.push(tag::NUMBER);
    into.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(into: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    put_count(into, tag, bytes.len());
    into.extend_from_slice(bytes);
}

fn put_count(into: &mut Vec<u8>, tag: u8, count: usize) {
    into.push(tag);
    // Limits on results and requests keep counts far below the maximum of 32 bits.
    into.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

/// Decodes scalars: the values of a statement, or the arguments of a command.
pub(super) fn read(mut bytes: &[u8]) -> Result<Vec<MysqlValue>, String> {
    let mut values = Vec::new();
    while let Some((&tag, rest)) = bytes.split_first() {
        let (value, rest) = match tag {
            tag::NULL => (MysqlValue::Null, rest),
            tag::FALSE | tag::TRUE => (MysqlValue::Boolean(tag == tag::TRUE), rest),
            tag::NUMBER => {
                let (number, rest) = rest.split_first_chunk().ok_or("a value is truncated")?;
                (MysqlValue::Number(f64::from_le_bytes(*number)), rest)
            }
            tag::BYTES => {
                let (length, rest) = rest.split_first_chunk().ok_or("a value is truncated")?;
                let length = u32::from_le_bytes(*length) as usize;
                let (bytes, rest) = rest
                    .split_at_checked(length)
                    .ok_or("a value is truncated")?;
                (MysqlValue::Bytes(bytes.to_vec()), rest)
            }
            other => return Err(format!("a value has the unknown type {other}")),
        };
        values.push(value);
        bytes = rest;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let values = vec![
            MysqlValue::Null,
            MysqlValue::Boolean(false),
            MysqlValue::Boolean(true),
            MysqlValue::Number(-1.5),
            MysqlValue::Number(9_007_199_254_740_991.0),
            MysqlValue::Bytes(Vec::new()),
            MysqlValue::Bytes(b"\0\xff \"".to_vec()),
        ];
        let mut bytes = Vec::new();
        for value in &values {
            put(&mut bytes, value);
        }
        assert_eq!(read(&bytes), Ok(values));
        for end in 1..bytes.len() {
            // A complete value may end at this point, so the result is not checked; reading must not go beyond the end.
            let _ = read(&bytes[..end]);
        }
        assert!(read(&[3, 0, 0]).is_err());
        assert!(read(&[4, 5, 0, 0, 0, b'a']).is_err());
        assert!(read(&[5, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn values_of_redis_nest() {
        let mut bytes = Vec::new();
        let list = RedisValue::List(vec![
            RedisValue::Nil,
            RedisValue::Error("no".into()),
            RedisValue::Map(vec![(
                RedisValue::Bytes(b"k".to_vec()),
                RedisValue::Boolean(true),
            )]),
        ]);
        put_redis(&mut bytes, &list);
        let expected = [
            5, 3, 0, 0, 0, 0, 7, 2, 0, 0, 0, b'n', b'o', 6, 1, 0, 0, 0, 4, 1, 0, 0, 0, b'k', 2,
        ];
        assert_eq!(bytes, expected);
    }
}
