//! UTF-8 validation of long texts.

use crate::raw::is_run_over;

/// Bytes validated at a time.
const PART_BYTES: usize = 1 << 20;

/// The longest encoding of a character.
const CHARACTER_BYTES_MAX: usize = 4;

/// Returns whether a text is UTF-8; `None` if the CPU time of the current run is used up before the whole text is checked.
#[inline]
pub(crate) fn check(text: &[u8]) -> Option<bool> {
    match text.len() <= PART_BYTES {
        true => Some(simdutf8::basic::from_utf8(text).is_ok()),
        false => check_in_parts(text, is_run_over),
    }
}

fn check_in_parts(mut rest: &[u8], is_over: fn() -> bool) -> Option<bool> {
    while rest.len() > PART_BYTES {
        // A part ends at a character boundary.
        let begins = |&at: &usize| !(0x80..0xc0).contains(&rest[at]);
        let ends = (PART_BYTES - CHARACTER_BYTES_MAX + 1..=PART_BYTES).rev();
        let Some(end) = ends.into_iter().find(begins) else {
            return Some(false);
        };
        let (part, behind) = rest.split_at(end);
        if simdutf8::basic::from_utf8(part).is_err() {
            return Some(false);
        }
        if is_over() {
            return None;
        }
        rest = behind;
    }
    Some(simdutf8::basic::from_utf8(rest).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_may_lie_across_the_ends_of_parts() {
        for character in ["a", "\u{e4}", "\u{20ac}", "\u{1f600}"] {
            for shift in 0..CHARACTER_BYTES_MAX {
                let text = "x".repeat(shift) + &character.repeat(2 * PART_BYTES);
                assert_eq!(check(text.as_bytes()), Some(true), "{character} {shift}");
                let cut = &text.as_bytes()[..text.len() - 1];
                let is_whole = character.len() == 1;
                assert_eq!(check(cut), Some(is_whole), "{character} {shift}");
            }
        }
        assert_eq!(check(&vec![0x80; 2 * PART_BYTES]), Some(false));
        let mut text = vec![b'a'; 3 * PART_BYTES];
        text[PART_BYTES + 7] = 0xff;
        assert_eq!(check(&text), Some(false));
        text[PART_BYTES + 7] = b'a';
        assert_eq!(check_in_parts(&text, || true), None);
    }
}
