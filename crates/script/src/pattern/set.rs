//! Sets of bytes: the character classes (`%a`) and sets in brackets. ASCII only, in any locale.

/// A set of bytes, as a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set([u64; 4]);

impl Set {
    pub(super) const EMPTY: Self = Self([0; 4]);

    /// Returns the class of `%` and a letter; `None` if the letter is not a class.
    pub(super) fn class(letter: u8) -> Option<Self> {
        let class = match letter.to_ascii_lowercase() {
            b'a' => const { Self::of_class(b'a') },
            b'c' => const { Self::of_class(b'c') },
            b'd' => const { Self::of_class(b'd') },
            b'g' => const { Self::of_class(b'g') },
            b'l' => const { Self::of_class(b'l') },
            b'p' => const { Self::of_class(b'p') },
            b's' => const { Self::of_class(b's') },
            b'u' => const { Self::of_class(b'u') },
            b'w' => const { Self::of_class(b'w') },
            b'x' => const { Self::of_class(b'x') },
            b'z' => const { Self::of_class(b'z') },
            _ => return None,
        };
        Some(if letter.is_ascii_uppercase() {
            class.complement()
        } else {
            class
        })
    }

    #[inline]
    pub(super) fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 != 0
    }

    pub(super) const fn insert(&mut self, byte: u8) {
        self.0[(byte >> 6) as usize] |= 1 << (byte & 63);
    }

    pub(super) fn insert_all(&mut self, other: Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    pub(super) fn complement(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    pub(super) fn is_disjoint(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(a, b)| a & b == 0)
    }

    const fn of_class(letter: u8) -> Self {
        let mut set = Self::EMPTY;
        let mut byte = 0;
        while byte < 128 {
            if is_of_class(letter, byte) {
                set.insert(byte);
            }
            byte += 1;
        }
        set
    }
}

const fn is_of_class(letter: u8, byte: u8) -> bool {
    match letter {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        // The standard library's white space excludes the vertical tab, 0x0b.
        b's' => matches!(byte, b'\t'..=b'\r' | b' '),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => false,
    }
}
