//! A hash of everything observed in a world: two runs with the same seed have the same hash.

use std::fmt::{self, Debug, Write};

/// The hash of everything observed so far, and the outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    hash: u64,
    /// The number of values noted as outputs.
    outputs: u64,
    /// The outputs as text; `None` unless `keep_words` was called.
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

    /// Starts to record outputs in text form.
    pub(crate) fn keep_words(&mut self) {
        self.words = Some(Vec::new());
    }

    pub(crate) fn words(&self) -> Vec<String> {
        self.words.clone().unwrap_or_default()
    }

    /// Returns the number of values noted as outputs.
    pub(crate) fn outputs(&self) -> u64 {
        self.outputs
    }

    pub(crate) fn note(&mut self, what: &[u64]) {
        for word in what {
            // A step of FNV, with words instead of bytes.
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

    /// Adds `kind` and the debug form of `value` to the hash.
    pub(crate) fn note_debug(&mut self, kind: u64, value: &impl Debug) {
        self.note(&[kind]);
        // Writing to `Noting` can't fail.
        let _ = write!(Noting(self), "{value:?}");
    }

    /// Counts an output. Also records it as text if [`keep_words`](Self::keep_words) was called.
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

/// Adds written text to the hash.
struct Noting<'a>(&'a mut Trace);

impl Write for Noting<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.note_bytes(text.as_bytes());
        Ok(())
    }
}
