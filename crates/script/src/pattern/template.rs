//! The replacement string of `gsub`, in which `%0` to `%9` are the match and its captures.

use std::io::Write;
use std::ops::Range;

use super::{Capture, Error, Matcher};

impl Matcher<'_> {
    /// Appends the expansion of `template` for the last match, `whole`, to `out`. Fails with [`Error::TooLarge`] if
    /// `out` would exceed `bytes_max`.
    pub(crate) fn append_replacement(
        &mut self,
        template: &[u8],
        whole: &Range<usize>,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<(), Error> {
        let subject = self.subject();
        let before = out.len();
        let mut rest = template;
        while let Some(percent) = memchr::memchr(b'%', rest) {
            append(out, &rest[..percent], bytes_max)?;
            // A lone `%` at the end gives a NUL: LuaJIT reads the byte that terminates the string.
            let letter = rest.get(percent + 1).copied().unwrap_or(0);
            match letter {
                b'0' => append(out, &subject[whole.clone()], bytes_max)?,
                b'1'..=b'9' => match self.capture(usize::from(letter - b'1'), whole)? {
                    Capture::Text(range) => append(out, &subject[range], bytes_max)?,
                    Capture::Position(at) => {
                        write!(out, "{}", at + 1).expect("writing to a Vec can't fail");
                    }
                },
                plain => out.push(plain),
            }
            self.budget().spend(1)?;
            rest = rest.get(percent + 2..).unwrap_or_default();
        }
        append(out, rest, bytes_max)?;
        self.budget().spend_bulk(out.len() - before)
    }
}

/// Appends bytes, unless `out` would exceed `bytes_max`.
pub(crate) fn append(out: &mut Vec<u8>, bytes: &[u8], bytes_max: usize) -> Result<(), Error> {
    if out.len() + bytes.len() > bytes_max {
        return Err(Error::TooLarge);
    }
    out.extend_from_slice(bytes);
    Ok(())
}
