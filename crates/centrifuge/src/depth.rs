//! Checks the nesting depth of JSON values, because clients' parsers fail on values that are nested too
//! deep.

/// Returns whether the arrays and objects of a JSON value are nested deeper than `depth_max`. The result for
/// invalid JSON is unspecified.
pub(crate) fn is_over(text: &str, depth_max: usize) -> bool {
    let bytes = text.as_bytes();
    // Most values have fewer brackets than the limit, so no scan of the nesting is needed.
    let openings = |byte: &&u8| matches!(byte, b'[' | b'{');
    if bytes.len() <= depth_max || bytes.iter().filter(openings).count() <= depth_max {
        return false;
    }
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at += string(&bytes[at..]),
            _ => {}
        }
    }
    false
}

/// Returns the length of a string after its opening quote, including the closing one.
fn string(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
        at += found + 1;
        match bytes[at - 1] {
            b'"' => return at,
            // An escaped byte, such as a quote, is skipped.
            _ => at = (at + 1).min(bytes.len()),
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_within_each_other_are_counted_and_brackets_in_strings_are_not() {
        for (text, depth) in [
            ("1", 0),
            ("[]", 1),
            ("[[],[],[]]", 2),
            (r#"{"a":[{"b":1}]}"#, 3),
            (r#""[[[[[[""#, 0),
            (r#"["\"[[[[[[","\\",[1]]"#, 2),
            (r#"{"[[[\\\"[[":{}}"#, 2),
            // Invalid JSON: any result, but no panic.
            ("\"[[\\", 0),
            ("]]]][", 1),
        ] {
            assert!(!is_over(text, depth), "{text}");
            assert!(depth == 0 || is_over(text, depth - 1), "{text}");
        }
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(!is_over(&deep(128), 128));
        assert!(is_over(&deep(129), 128));
        assert!(!is_over(&"[1],".repeat(1000), 128));
    }
}
