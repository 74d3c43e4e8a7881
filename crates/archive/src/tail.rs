//! Finds what SQLite leaves unsaid: that a write-ahead log goes on behind its last whole commit. The format is at
//! <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// Bytes of frames that were begun behind `frames` good ones. Left-overs of an earlier round of the log, which bear
/// another salt, don't count.
pub(crate) fn unfinished_bytes(path: &Path, frames: u64, page_bytes: u64) -> io::Result<u64> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let end = file.metadata()?.len();
    let mut header = [0; HEADER_BYTES as usize];
    if end < HEADER_BYTES {
        return Ok(end);
    }
    file.read_exact(&mut header)?;
    if !is_header_whole(&header) {
        return Ok(end);
    }
    let salt = &header[16..24];
    let frame_bytes = FRAME_HEADER_BYTES + page_bytes;
    let mut at = HEADER_BYTES + frames * frame_bytes;
    let begun = at;
    while at < end {
        let mut frame = [0; FRAME_HEADER_BYTES as usize];
        file.seek(SeekFrom::Start(at))?;
        let is_whole = end - at >= frame_bytes;
        let is_of_this_round = end - at >= FRAME_HEADER_BYTES && {
            file.read_exact(&mut frame)?;
            frame[8..16] == *salt
        };
        match (is_of_this_round, is_whole) {
            (true, true) => at += frame_bytes,
            (true, false) => at = end,
            (false, _) => break,
        }
    }
    Ok(at - begun)
}

/// Whether the header bears its own checksum: if not, SQLite takes nothing of the log.
fn is_header_whole(header: &[u8; HEADER_BYTES as usize]) -> bool {
    let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    // The last bit of the magic number says in which order the summands' bytes are.
    let is_big_endian = header[3] & 1 == 1;
    let summand = |at| match is_big_endian {
        true => u32::from_be_bytes(word(at)),
        false => u32::from_le_bytes(word(at)),
    };
    let (mut first, mut second) = (0_u32, 0_u32);
    for at in (0..24).step_by(8) {
        first = first.wrapping_add(summand(at)).wrapping_add(second);
        second = second.wrapping_add(summand(at + 4)).wrapping_add(first);
    }
    (u32::from_be_bytes(word(24)), u32::from_be_bytes(word(28))) == (first, second)
}
