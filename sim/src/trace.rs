//! A hash of all that was heard in a world: two runs of one seed have the same.

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace(u64);

impl Trace {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn note(&mut self, what: &[u64]) {
        for word in what {
            // FNV's step, with words instead of bytes.
            self.0 = (self.0 ^ word)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(17);
        }
    }

    pub(crate) fn note_text(&mut self, text: &str) {
        for byte in text.bytes() {
            self.note(&[byte.into()]);
        }
    }

    pub(crate) fn hash(self) -> u64 {
        self.0
    }
}
