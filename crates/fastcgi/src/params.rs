//! The parameters of a request, in PARAMS records that php-fpm can read.

use crate::record::{CONTENT_BYTES_MAX, RecordKind, begin_content, put};

/// Maximum length of a name and a value with their length fields, in bytes: they must fit into one
/// record.
pub const PAIR_BYTES_MAX: usize = CONTENT_BYTES_MAX;

/// Lengths up to this are encoded in one byte, longer ones in four.
const SHORT_LENGTH_MAX: usize = 127;

/// The error of a parameter that does not fit into a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parameter {name} of {bytes} bytes is too long")]
pub struct ParamTooLong {
    /// The name of the parameter.
    pub name: String,
    /// The length of the value.
    pub bytes: usize,
}

/// Parameters of a request, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Complete records, and the one being filled.
    records: Vec<u8>,
    /// Where the content of the last record begins; 0 before the first record.
    last: usize,
}

impl Params {
    /// Appends a parameter.
    ///
    /// # Errors
    /// The pair is longer than [`PAIR_BYTES_MAX`]. Nothing was appended.
    pub fn push(&mut self, name: &str, value: &[u8]) -> Result<(), ParamTooLong> {
        let pair_bytes =
            length_bytes(name.len()) + length_bytes(value.len()) + name.len() + value.len();
        if pair_bytes > PAIR_BYTES_MAX {
            return Err(ParamTooLong {
                name: name.to_owned(),
                bytes: value.len(),
            });
        }
        let filled = self.records.len() - self.last;
        if self.last == 0 || filled + pair_bytes > CONTENT_BYTES_MAX {
            self.end_record();
            self.last = begin_content(&mut self.records, RecordKind::Params);
        }
        put_length(&mut self.records, name.len());
        put_length(&mut self.records, value.len());
        self.records.extend_from_slice(name.as_bytes());
        self.records.extend_from_slice(value);
        Ok(())
    }

    /// Appends the records to a request, followed by the empty record that ends the parameters.
    pub(crate) fn write(mut self, into: &mut Vec<u8>) {
        self.end_record();
        into.extend_from_slice(&self.records);
        put(into, RecordKind::Params, b"");
    }

    fn end_record(&mut self) {
        if self.last > 0 {
            crate::record::end_content(&mut self.records, self.last);
        }
    }
}

fn length_bytes(length: usize) -> usize {
    if length <= SHORT_LENGTH_MAX { 1 } else { 4 }
}

fn put_length(into: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if length <= SHORT_LENGTH_MAX => into.push(short),
        // The length fits into 31 bits, since a pair fits into a record.
        _ => into.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, RecordDecoder};

    /// Parses the pairs of one record on its own, as php-fpm does.
    fn pairs(content: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        fn length(content: &mut &[u8]) -> usize {
            let short = content[0];
            let bytes = if short > 127 { 4 } else { 1 };
            let (head, rest) = content.split_at(bytes);
            *content = rest;
            match bytes {
                1 => usize::from(short),
                _ => u32::from_be_bytes(head.try_into().expect("four")) as usize & 0x7fff_ffff,
            }
        }
        let mut left = content;
        let mut found = Vec::new();
        while !left.is_empty() {
            let lengths = (length(&mut left), length(&mut left));
            let (name, rest) = left.split_at(lengths.0);
            let (value, rest) = rest.split_at(lengths.1);
            found.push((name.to_vec(), value.to_vec()));
            left = rest;
        }
        found
    }

    #[test]
    fn no_pair_continues_in_the_next_record() {
        let values = [
            0, 1, 126, 127, 128, 129, 255, 256, 40_000, 30_000, 65_000, 65_521, 1,
        ];
        let mut params = Params::default();
        for (number, bytes) in values.into_iter().enumerate() {
            params
                .push(&format!("NAME_{number:02}"), &vec![b'x'; bytes])
                .expect("it fits");
        }
        let mut bytes = Vec::new();
        params.write(&mut bytes);
        let mut decoder = RecordDecoder::default();
        decoder.feed(&bytes);
        let mut found = Vec::new();
        let mut contents = Vec::new();
        while let Some(Record { kind, content }) = decoder.next().expect("records") {
            assert_eq!(kind, RecordKind::Params as u8);
            contents.push(content.len());
            found.extend(pairs(content).into_iter().map(|(_, value)| value.len()));
        }
        assert_eq!(found, values);
        assert_eq!(contents.last(), Some(&0), "an empty record ends them");
        assert!(contents.len() > 3, "they take several records");
    }

    #[test]
    fn a_pair_longer_than_a_record_is_refused() {
        let mut params = Params::default();
        let longest = PAIR_BYTES_MAX - 1 - 4 - 1;
        params.push("A", &vec![b'x'; longest]).expect("it fits");
        let before = params.clone();
        let error = params
            .push("A", &vec![b'x'; longest + 1])
            .expect_err("too long");
        assert_eq!((error.name.as_str(), error.bytes), ("A", longest + 1));
        assert_eq!(params, before);
    }
}
