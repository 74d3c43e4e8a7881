//! Finds what SQLite leaves unsaid: that a write-ahead log goes on behind its last good commit, and whether what is
//! there had been committed. The format is at <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// A log's salt changes with each of its rounds: the first half grows by one, the second is random. So many rounds
/// back it is still taken for an earlier one of the same log.
const ROUNDS_MAX: u32 = 1 << 20;

/// What stands in a log behind its last good commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalTail {
    /// Its length.
    pub(crate) bytes: u64,
    /// How many whole frames in it end a commit.
    pub(crate) commits: u64,
    /// It has a frame that is neither of this round of the log nor of an earlier one.
    is_garbled: bool,
}

impl WalTail {
    /// What follows `frames` good ones.
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
            // A damaged header does not say which round this is, but the first frame does.
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
            // A frame's header that is not all there.
            tail.bytes = end - begun;
        }
        Ok(tail)
    }

    /// Whether something that was committed may be in it. A process that is killed while it writes leaves no whole
    /// frame that ends a commit.
    pub(crate) fn is_loss(&self) -> bool {
        self.commits > 0 || self.is_garbled
    }
}

/// Ends a log behind that many frames, which takes no room on the disk.
pub(crate) fn cut(path: &Path, frames: u64, page_bytes: u64) -> io::Result<()> {
    let end = match frames {
        // Its header may be damaged as well.
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

/// Of one round of the log.
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

    /// Whether it is an earlier round's: both halves differ, where a damaged byte changes one.
    fn is_before(self, now: Self) -> bool {
        let rounds = now.round.wrapping_sub(self.round);
        (1..=ROUNDS_MAX).contains(&rounds) && self.random != now.random
    }
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
