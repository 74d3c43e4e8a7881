//! Detects what SQLite does not report: whether a write-ahead log continues after its last valid commit, and whether
//! the data after that commit was committed.
//!
//! The format is at <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// SQLite changes a log's salt in each round, that is, whenever it starts to write the log from the
/// beginning again: the first half is incremented, the second is random. A salt from at most this
/// many rounds ago counts as an earlier salt of the same log.
const ROUNDS_MAX: u32 = 1 << 20;

/// The part of a log after its last valid commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalTail {
    /// The length of this part of the log in bytes.
    pub(crate) bytes: u64,
    /// The number of complete frames that end a commit.
    pub(crate) commits: u64,
    /// Whether a frame's salt is neither that of the log's current round nor that of an earlier round.
    is_garbled: bool,
}

impl WalTail {
    /// Reads the part of the log after its first `frames` frames, which are valid.
    pub(crate) fn read(path: &Path, frames: u64, page_bytes: u64) -> io::Result<Self> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let end = file.metadata()?.len();
        let mut header = [0; HEADER_BYTES as usize];
        if end < HEADER_BYTES {
            return Ok(Self {
                bytes: end,
                ..Self::default()
            });
        }
        file.read_exact(&mut header)?;
        let mut tail = Self::default();
        let is_whole = is_header_whole(&header);
        let mut round = is_whole.then(|| Salt::of(&header[16..24]));
        let begun = frame_at(frames, page_bytes);
        let mut at = begun;
        while end - at.min(end) >= FRAME_HEADER_BYTES {
            let mut frame = [0; FRAME_HEADER_BYTES as usize];
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut frame)?;
            let next = at + FRAME_HEADER_BYTES + page_bytes;
            let salt = Salt::of(&frame[8..16]);
            // A damaged header does not contain the log's current salt, but the first frame does.
            let round = *round.get_or_insert(salt);
            let is_of_this_round = salt == round;
            if is_of_this_round || !salt.is_before(round) {
                tail.bytes = next.min(end) - begun;
                let is_commit = frame[4..8] != [0; 4] && next <= end;
                tail.commits += u64::from(is_of_this_round && is_commit);
                tail.is_garbled |= !is_of_this_round && next <= end;
            }
            at = next;
        }
        if !is_whole {
            tail.bytes = end;
        } else if at < end && tail.bytes == at - begun {
            // The log ends within a frame header.
            tail.bytes = end - begun;
        }
        Ok(tail)
    }

    /// Returns whether the tail may contain committed data. A process killed while writing leaves no whole frame that
    /// ends a commit.
    pub(crate) fn is_loss(&self) -> bool {
        self.commits > 0 || self.is_garbled
    }
}

/// Truncates a log after `frames` frames, which needs no disk space.
pub(crate) fn cut(path: &Path, frames: u64, page_bytes: u64) -> io::Result<()> {
    let end = match frames {
        // Without valid frames the header is removed too, since it may be damaged as well.
        0 => 0,
        _ => frame_at(frames, page_bytes),
    };
    let file = match OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() > end {
        file.set_len(end)?;
    }
    Ok(())
}

fn frame_at(number: u64, page_bytes: u64) -> u64 {
    HEADER_BYTES + number * (FRAME_HEADER_BYTES + page_bytes)
}

/// A salt of the log. SQLite changes it in each round, that is, when it starts to write the log from the beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Salt {
    round: u32,
    random: u32,
}

impl Salt {
    fn of(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            round: word(0),
            random: word(4),
        }
    }

    /// Returns whether this salt belongs to an earlier round of the log than `now`. Both halves must differ, since a
    /// damaged byte changes only one of them.
    fn is_before(self, now: Self) -> bool {
        let rounds = now.round.wrapping_sub(self.round);
        (1..=ROUNDS_MAX).contains(&rounds) && self.random != now.random
    }
}

/// Returns whether the header matches its own checksum. SQLite ignores a log whose header fails this check.
fn is_header_whole(header: &[u8; HEADER_BYTES as usize]) -> bool {
    let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    // The last bit of the magic number gives the byte order of the checksum's input.
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
