//! A hash of all that was seen in a world: two runs of one seed have the same.

use std::fmt::{self, Debug, Write};

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    hash: u64,
    /// Values that were said.
    outputs: u64,
    /// The same in words, while that is wanted.
    words: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            outputs: 0,
            words: None,
        }
    }

    /// From now on what is noted is kept in words as well.
    pub(crate) fn keep_words(&mut self) {
        self.words = Some(Vec::new());
    }

    pub(crate) fn words(&self) -> Vec<String> {
        self.words.clone().unwrap_or_default()
    }

    /// How many values were said.
    pub(crate) fn outputs(&self) -> u64 {
        self.outputs
    }

    pub(crate) fn note(&mut self, what: &[u64]) {
        for word in what {
            // FNV's step, with words instead of bytes.
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(17);
        }
    }

    pub(crate) fn note_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.note(&[u64::from_le_bytes(*word)]);
        }
        for byte in rest {
            self.note(&[(*byte).into()]);
        }
    }

    pub(crate) fn note_text(&mut self, text: &str) {
        self.note_bytes(text.as_bytes());
    }

    /// Notes a value by what it looks like, as one of that kind.
    pub(crate) fn note_debug(&mut self, kind: u64, value: &impl Debug) {
        self.note(&[kind]);
        // It takes any text.
        let _ = write!(Noting(self), "{value:?}");
    }

    /// Counts a value that was noted, and keeps it in words if they are wanted.
    pub(crate) fn count_output(&mut self, value: &impl Debug) {
        self.outputs += 1;
        if let Some(words) = &mut self.words {
            words.push(format!("{value:?}"));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// Notes what is written.
struct Noting<'a>(&'a mut Trace);

impl Write for Noting<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.note_bytes(text.as_bytes());
        Ok(())
    }
}
