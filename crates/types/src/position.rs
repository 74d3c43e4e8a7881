//! Positions in a channel's stream and their text form.

use std::fmt;
use std::str::FromStr;

/// Identifies one incarnation of a channel's stream. Offsets of different epochs are unrelated: a stream that was lost
/// starts over with another epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch(u64);

/// The digits of an epoch, without characters that look alike.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The number of digits of an epoch, five bits each.
const EPOCH_DIGITS: usize = 8;
const EPOCH_MASK: u64 = (1 << (5 * EPOCH_DIGITS)) - 1;

impl Epoch {
    /// An epoch that no stream has. Clients send it if they have no position.
    pub const UNKNOWN: Self = Self(0);

    /// Creates an epoch from the lower 40 bits of `bits`, which should be random. Never returns
    /// [`UNKNOWN`](Self::UNKNOWN).
    pub fn from_bits(bits: u64) -> Self {
        Self((bits & EPOCH_MASK).max(1))
    }

    /// Returns the 40 bits of the epoch.
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; EPOCH_DIGITS];
        for (place, digit) in text.iter_mut().rev().enumerate() {
            *digit = DIGITS[(self.0 >> (5 * place)) as usize % DIGITS.len()];
        }
        // Digits are ASCII.
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

impl FromStr for Epoch {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        if text.len() != EPOCH_DIGITS {
            return Err(PositionError);
        }
        let mut bits = 0;
        for digit in text.bytes() {
            let value = DIGITS.iter().position(|one| *one == digit);
            bits = bits << 5 | value.ok_or(PositionError)? as u64;
        }
        Ok(Self(bits))
    }
}

/// The position of one publication in a channel's stream. A stream's own position is that of its latest publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The epoch of the stream.
    pub epoch: Epoch,
    /// The offset in the epoch. The first publication has offset 1; 0 is the position before it.
    pub offset: u64,
}

impl Position {
    /// A position that is not known.
    pub const UNKNOWN: Self = Self {
        epoch: Epoch::UNKNOWN,
        offset: 0,
    };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.offset)
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let (epoch, offset) = text.split_once(':').ok_or(PositionError)?;
        if offset.len() > 20 || !offset.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PositionError);
        }
        Ok(Self {
            epoch: epoch.parse()?,
            offset: offset.parse().map_err(|_| PositionError)?,
        })
    }
}

/// The text is neither a position nor an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position is an epoch and an offset, such as \"9x3kd07f:42\"")]
pub struct PositionError;

/// The position up to which a subscriber has received a channel's publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// The epoch of the stream; `None` matches every epoch.
    pub epoch: Option<Epoch>,
    /// The offset of the last publication that the subscriber has.
    pub offset: u64,
}

impl Since {
    /// Returns whether the subscriber's last publication is after a position in the same epoch. Without an epoch, only
    /// the offsets are compared.
    #[must_use]
    pub fn is_after(&self, position: Position) -> bool {
        self.epoch.is_none_or(|epoch| epoch == position.epoch) && self.offset > position.offset
    }
}

impl From<Position> for Since {
    fn from(position: Position) -> Self {
        Self {
            epoch: Some(position.epoch),
            offset: position.offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_are_written() {
        for (bits, offset) in [(1, 0), (u64::MAX, u64::MAX), (0x12_3456_789a, 42)] {
            let position = Position {
                epoch: Epoch::from_bits(bits),
                offset,
            };
            assert_eq!(position.to_string().parse(), Ok(position), "{position}");
        }
        assert_eq!(Epoch::from_bits(0x12_3456_789a).to_string(), "28t5cy4t");
        assert_ne!(Epoch::from_bits(0), Epoch::UNKNOWN);
    }

    #[test]
    fn invalid_positions_are_refused() {
        for text in [
            "",
            ":",
            "28t5cy4t",
            "28t5cy4t:",
            "28t5cy4t:+1",
            "28t5cy4t:-1",
            "28t5cy4t:18446744073709551616",
            "28t5cy4t:00000000000000000000001",
            "28t5cy4:1",
            "28t5cy4tt:1",
            "28T5CY4T:1",
            "28t5cy4u:1",
            "éééé:1",
        ] {
            assert_eq!(text.parse::<Position>(), Err(PositionError), "{text:?}");
        }
    }
}
