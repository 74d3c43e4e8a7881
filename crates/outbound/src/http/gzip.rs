//! Decompresses gzip bodies in steps. Each step produces at most about the requested number of
//! bytes.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

/// The number of input bytes processed at a time. It is small because the output can be a thousand times as long.
const STEP_BYTES: usize = 1024;

/// The decompression state of one body.
pub(super) struct Inflater {
    decoder: MultiGzDecoder<Sink>,
    /// Bytes that were received but not decompressed yet.
    pending: bytes::Bytes,
    has_begun: bool,
}

#[derive(Default)]
struct Sink(Vec<u8>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Inflater {
    pub(super) fn new() -> Self {
        Self {
            decoder: MultiGzDecoder::new(Sink::default()),
            pending: bytes::Bytes::new(),
            has_begun: false,
        }
    }

    /// Returns whether all received data is decompressed, so that more can be [pushed](Self::push).
    pub(super) fn needs_input(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn push(&mut self, bytes: bytes::Bytes) {
        self.has_begun |= !bytes.is_empty();
        self.pending = bytes;
    }

    /// Returns about `bytes_max` decompressed bytes, or fewer if the received data is used up.
    ///
    /// # Errors
    /// The data is not gzip.
    pub(super) fn pull(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        while !self.pending.is_empty() && self.decoder.get_ref().0.len() < bytes_max {
            let step = self.pending.split_to(STEP_BYTES.min(self.pending.len()));
            self.decoder.write_all(&step)?;
        }
        Ok(std::mem::take(&mut self.decoder.get_mut().0))
    }

    /// Returns the remaining decompressed bytes at the end of the body.
    ///
    /// # Errors
    /// The body is truncated.
    pub(super) fn finish(&mut self) -> io::Result<Vec<u8>> {
        // An empty body, as in a response to HEAD, is not an error although it is not valid gzip data.
        if self.has_begun {
            self.decoder.try_finish()?;
        }
        Ok(std::mem::take(&mut self.decoder.get_mut().0))
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> bytes::Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory").into()
    }

    fn inflate(pieces: &[bytes::Bytes]) -> io::Result<Vec<u8>> {
        let (mut inflater, mut all) = (Inflater::new(), Vec::new());
        for piece in pieces {
            inflater.push(piece.clone());
            while !inflater.needs_input() {
                all.extend(inflater.pull(100)?);
            }
        }
        all.extend(inflater.finish()?);
        Ok(all)
    }

    #[test]
    fn comes_out_as_it_went_in() {
        for text in [&b""[..], b"hello", &[7; 300_000]] {
            let whole = gzip(text);
            assert_eq!(inflate(std::slice::from_ref(&whole)).expect("gzip"), text);
            let bytes: Vec<_> = whole.chunks(1).map(bytes::Bytes::copy_from_slice).collect();
            assert_eq!(inflate(&bytes).expect("gzip"), text);
            let twice = inflate(&[whole.clone(), whole]).expect("two members");
            assert_eq!(twice, [text, text].concat());
        }
        assert_eq!(inflate(&[]).expect("no body"), b"");
    }

    #[test]
    fn invalid_gzip_is_an_error() {
        let whole = gzip(b"hello, hello");
        assert!(inflate(&[whole.slice(..whole.len() - 3)]).is_err());
        assert!(inflate(&[whole.slice(..5)]).is_err());
        assert!(inflate(&["no gzip at all".into()]).is_err());
        let mut wrong = whole.to_vec();
        let last = wrong.len() - 6;
        wrong[last] ^= 1;
        assert!(inflate(&[wrong.into()]).is_err());
    }

    #[test]
    fn a_bomb_is_inflated_piece_by_piece() {
        let mut inflater = Inflater::new();
        inflater.push(gzip(&vec![0; 64 << 20]));
        let first = inflater.pull(64 << 10).expect("gzip");
        assert!(
            first.len() <= (64 << 10) + 1040 * STEP_BYTES,
            "{}",
            first.len()
        );
        assert!(!inflater.needs_input());
    }
}
