//! Records of FastCGI 1.0 (section 3.3 of its specification): encoding, and decoding of arbitrarily split input.

/// Version of the protocol. It is the first byte of each record.
pub const VERSION: u8 = 1;

/// Length of a record's header in bytes.
pub const HEADER_BYTES: usize = 8;

/// Maximum length of a record's content in bytes.
pub const CONTENT_BYTES_MAX: usize = 65_535;

/// The request id of all records. It is constant because php-fpm handles one request at a time per connection.
const REQUEST_ID: [u8; 2] = [0, 1];

/// The type of a record (FastCGI 1.0, section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// Begins a request, with its role and flags.
    BeginRequest = 1,
    /// Ends a response, with its status.
    EndRequest = 3,
    /// Parameters of a request.
    Params = 4,
    /// A piece of a request's body.
    Stdin = 5,
    /// A piece of a response.
    Stdout = 6,
    /// A piece of a script's error output.
    Stderr = 7,
}

/// A received record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The record's type: one of [`RecordKind`], or a number that is unknown here.
    pub kind: u8,
    /// The content, without its padding.
    pub content: &'a [u8],
}

/// The error for bytes that are not a record of FastCGI 1.0. Contains their first byte, which would be the version of a
/// record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response is not FastCGI: it has a record of version {0}")]
pub struct NoRecord(pub u8);

/// Appends a record with the content, which has at most [`CONTENT_BYTES_MAX`] bytes.
pub fn put(into: &mut Vec<u8>, kind: RecordKind, content: &[u8]) {
    let from = begin_content(into, kind);
    into.extend_from_slice(content);
    end_content(into, from);
}

/// Appends the record that begins a request, with the role of a responder. `is_kept` keeps the connection open after the
/// response.
pub(crate) fn begin(into: &mut Vec<u8>, is_kept: bool) {
    put(
        into,
        RecordKind::BeginRequest,
        &[0, 1, u8::from(is_kept), 0, 0, 0, 0, 0],
    );
}

/// Appends the records of a body, followed by the empty record that ends the body.
pub(crate) fn body(into: &mut Vec<u8>, body: &[u8]) {
    for part in body.chunks(CONTENT_BYTES_MAX) {
        put(into, RecordKind::Stdin, part);
    }
    put(into, RecordKind::Stdin, b"");
}

/// Appends a header whose length is not known yet; returns the offset of the content.
pub(crate) fn begin_content(into: &mut Vec<u8>, kind: RecordKind) -> usize {
    let [high, low] = REQUEST_ID;
    into.extend_from_slice(&[VERSION, kind as u8, high, low, 0, 0, 0, 0]);
    into.len()
}

/// Ends the record whose content begins at `from`: writes its length into its header.
pub(crate) fn end_content(into: &mut [u8], from: usize) {
    let length = into.len() - from;
    debug_assert!(length <= CONTENT_BYTES_MAX);
    into[from - 4..from - 2].copy_from_slice(&(length as u16).to_be_bytes());
}

/// Splits a stream of bytes into records.
#[derive(Debug, Default)]
pub struct RecordDecoder {
    buffer: Vec<u8>,
    /// The offset in the buffer of the first byte that was not decoded.
    start: usize,
}

impl RecordDecoder {
    /// Adds received bytes to the undecoded ones.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete record; `None` if more bytes are required.
    ///
    /// # Errors
    /// The bytes are not valid records.
    #[expect(clippy::should_implement_trait, reason = "records are lent")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, NoRecord> {
        let left = &self.buffer[self.start..];
        if let Some(&version) = left.first()
            && version != VERSION
        {
            return Err(NoRecord(version));
        }
        let Some((header, rest)) = left.split_at_checked(HEADER_BYTES) else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let padding = usize::from(header[6]);
        if rest.len() < length + padding {
            return Ok(None);
        }
        self.start += HEADER_BYTES + length + padding;
        Ok(Some(Record {
            kind: header[1],
            content: &rest[..length],
        }))
    }

    /// Returns whether all input was consumed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.len() == self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(decoder: &mut RecordDecoder, into: &mut Vec<(u8, Vec<u8>)>) {
        while let Some(record) = decoder.next().expect("records") {
            into.push((record.kind, record.content.to_vec()));
        }
    }

    #[test]
    fn records_are_read_however_they_are_split() {
        let mut bytes = Vec::new();
        begin(&mut bytes, true);
        body(&mut bytes, &vec![7; CONTENT_BYTES_MAX + 1]);
        // A record with padding, which a server may send.
        bytes.extend_from_slice(&[1, 6, 0, 1, 0, 2, 3, 0, b'o', b'k', 0, 0, 0]);
        let expected = vec![
            (1, vec![0, 1, 1, 0, 0, 0, 0, 0]),
            (5, vec![7; CONTENT_BYTES_MAX]),
            (5, vec![7]),
            (5, vec![]),
            (6, b"ok".to_vec()),
        ];
        for size in [bytes.len(), 65_536, 1000, 7, 1] {
            let mut decoder = RecordDecoder::default();
            let mut found = Vec::new();
            for part in bytes.chunks(size) {
                decoder.feed(part);
                all(&mut decoder, &mut found);
            }
            assert_eq!(found, expected, "in parts of {size} bytes");
            assert!(decoder.is_empty());
        }
    }

    #[test]
    fn other_protocols_are_detected_by_the_first_byte() {
        let mut decoder = RecordDecoder::default();
        decoder.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        assert_eq!(decoder.next(), Err(NoRecord(b'H')));
    }
}
