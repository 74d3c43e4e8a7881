//! A sliding window over a file. The content of the window is contiguous in memory.

use std::io::Read;

use super::fault::LoadFault;
use crate::table::job::FilePosition;

/// Size of a read in bytes.
const BLOCK: usize = 256 << 10;
/// Maximum length of an object or line in bytes. A row of 64 columns with 65,535 escaped bytes each is shorter.
pub(super) const PIECE_MAX: usize = 32 << 20;

pub(super) struct Window<'a> {
    reader: Box<dyn Read + 'a>,
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    /// The number of bytes of the file before the window.
    before: u64,
    is_ended: bool,
}

impl<'a> Window<'a> {
    /// Creates a window at the beginning of a file. `bytes` is the buffer of an earlier window, for
    /// reuse.
    pub(super) fn new(reader: Box<dyn Read + 'a>, mut bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            bytes.resize(BLOCK, 0);
        }
        Self {
            reader,
            bytes,
            from: 0,
            to: 0,
            before: 0,
            is_ended: false,
        }
    }

    /// Returns the buffer for reuse.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        // Releases the memory of a very long object.
        self.bytes.truncate(BLOCK);
        self.bytes.shrink_to_fit();
        self.bytes
    }

    /// Returns the bytes in the window that are not consumed yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Returns the offset in the file of the first byte that is not consumed yet.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.from as u64
    }

    pub(super) fn take(&mut self, count: usize) {
        self.from += count;
    }

    /// Reads more of the file into the window. Returns `false` at the end of the file.
    pub(super) fn more(&mut self) -> Result<bool, LoadFault> {
        if self.is_ended {
            return Ok(false);
        }
        if self.from > 0 {
            self.bytes.copy_within(self.from..self.to, 0);
            self.before += self.from as u64;
            (self.from, self.to) = (0, self.to - self.from);
        }
        if self.to == self.bytes.len() {
            if self.to >= PIECE_MAX {
                let why = format!("an object or a line may have at most {PIECE_MAX} bytes");
                return Err(LoadFault::Text(FilePosition::Byte(self.offset()), why));
            }
            self.bytes.resize(self.to * 2, 0);
        }
        loop {
            match self.reader.read(&mut self.bytes[self.to..]) {
                Ok(0) => {
                    self.is_ended = true;
                    return Ok(false);
                }
                Ok(count) => {
                    self.to += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LoadFault::Read(error.to_string())),
            }
        }
    }

    /// Skips bytes accepted by `is_skipped`. Returns the next byte without consuming it; `None` at the end of the file.
    pub(super) fn skip(
        &mut self,
        is_skipped: impl Fn(u8) -> bool,
    ) -> Result<Option<u8>, LoadFault> {
        loop {
            let rest = self.rest();
            match rest.iter().position(|byte| !is_skipped(*byte)) {
                Some(place) => {
                    let byte = rest[place];
                    self.take(place);
                    return Ok(Some(byte));
                }
                None => {
                    let all = rest.len();
                    self.take(all);
                    if !self.more()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Skips a UTF-8 byte order mark.
    pub(super) fn skip_mark(&mut self) -> Result<(), LoadFault> {
        while self.rest().len() < 3 && self.more()? {}
        if self.rest().starts_with(b"\xef\xbb\xbf") {
            self.take(3);
        }
        Ok(())
    }
}
