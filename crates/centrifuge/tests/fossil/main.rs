//! Tests that applying a delta yields the publication, and that the delta of a text is text.

mod decoder;

use proptest::prelude::*;
use veche_centrifuge::{DELTA_BYTES_MAX, fossil_delta};

use decoder::applied;

/// Checks the delta from `old` to `new`, and returns its size in bytes; `None` if no delta is made.
#[track_caller]
fn check(old: &[u8], new: &[u8]) -> Option<usize> {
    let delta = fossil_delta(old, new)?;
    assert!(delta.len() < new.len());
    assert_eq!(applied(old, &delta).as_deref(), Ok(new));
    if str::from_utf8(new).is_ok() {
        assert!(str::from_utf8(&delta).is_ok(), "a delta of text is text");
    }
    Some(delta.len())
}

#[test]
fn unchanged_data_is_copied_not_sent() {
    let old = format!(r#"{{"price":100,"name":"{}","volume":7}}"#, "x".repeat(80));
    for (new, bytes_max) in [
        (old.clone(), 16),
        (old.replace("100", "1007"), 26),
        (old.replace('7', "8"), 26),
        (old.replace("100", "99").replace('7', "12345"), 36),
    ] {
        let bytes = check(old.as_bytes(), new.as_bytes()).expect("most of it is the same");
        assert!(bytes <= bytes_max, "{bytes} for {new}");
    }
    // Deltas also find data that has moved.
    let parts = ["the first of two parts, ", "and the second of them. "];
    let old = parts.concat().repeat(3);
    let new = format!("{}#{}", parts[1], parts[0]).repeat(3);
    assert!(check(old.as_bytes(), new.as_bytes()).expect("the same parts") < 80);
}

#[test]
fn a_delta_larger_than_the_data_is_omitted() {
    for (old, new) in [
        ("", ""),
        ("", "a"),
        ("a", ""),
        ("a", "a"),
        ("1", "2"),
        ("abcdefgh", "abcdefgh"),
        ("abcdefghijklmnop", "ponmlkjihgfedcba"),
    ] {
        assert_eq!(
            fossil_delta(old.as_bytes(), new.as_bytes()),
            None,
            "{old} {new}"
        );
    }
    let large = vec![b'a'; DELTA_BYTES_MAX + 1];
    assert_eq!(fossil_delta(&large, &large[1..]), None);
    assert_eq!(fossil_delta(&large[1..], &large), None);
    assert!(check(&large[1..], &large[1..]).is_some());
}

#[test]
fn no_character_is_cut_in_two() {
    // Pairs of characters that share leading bytes, trailing bytes, or both.
    for (old, new) in [
        ("ä", "ö"),
        ("é", "ɩ"),
        ("€", "₭"),
        ("😀", "😁"),
        ("𝄞", "😞"),
    ] {
        for (before, behind) in [(0, 30), (30, 0), (30, 30)] {
            let around =
                |text: &str| ["a".repeat(before), text.to_owned(), "b".repeat(behind)].concat();
            let (old, new) = (around(old), around(new));
            assert!(check(old.as_bytes(), new.as_bytes()).is_some(), "{new}");
        }
    }
}

/// Deltas of repetitive data would take long if the number of comparisons was not bounded.
#[test]
fn the_same_over_and_over_costs_little() {
    let same = vec![b'a'; DELTA_BYTES_MAX];
    let mut broken = same.clone();
    for place in (0..broken.len()).step_by(37) {
        broken[place] = b'b';
    }
    check(&same, &broken);
    check(&broken, &same);
    let mut shifted = broken.clone();
    shifted.rotate_left(11);
    assert!(check(&broken, &shifted).expect("the same but for its ends") < 1_000);
}

/// Generates data, and other data assembled from parts of it.
fn related() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let piece = prop_oneof![
        3 => (any::<prop::sample::Index>(), 0..200_usize).prop_map(|(at, count)| Err((at, count))),
        2 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Ok),
        1 => "[a-zäöü€😀😁]{0,12}".prop_map(|text| Ok(text.into_bytes())),
    ];
    let old = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..600),
        prop::collection::vec(prop::sample::select(b"ab".as_slice()), 1..600),
        "[a-zäöü€😀😁]{1,200}".prop_map(String::into_bytes),
    ];
    (old, prop::collection::vec(piece, 0..8)).prop_map(|(old, pieces)| {
        let mut new = Vec::new();
        for piece in pieces {
            match piece {
                Ok(bytes) => new.extend(bytes),
                Err((at, count)) => {
                    let at = at.index(old.len());
                    new.extend_from_slice(&old[at..(at + count).min(old.len())]);
                }
            }
        }
        (old, new)
    })
}

/// Generates pairs of similar texts that differ in characters of one to four bytes.
fn texts() -> impl Strategy<Value = (String, String)> {
    let part = "[aé€😀😁ɩ]{0,3}[a-c ]{0,24}";
    prop::collection::vec((part, part, any::<bool>()), 1..12).prop_map(|parts| {
        let old = parts.iter().map(|(one, ..)| one.as_str()).collect();
        let new = parts.iter().map(|(one, other, is_same)| match is_same {
            true => one.as_str(),
            false => other.as_str(),
        });
        (old, new.collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_made_of_a_delta_is_what_was_meant((old, new) in related()) {
        check(&old, &new);
        check(&new, &old);
    }

    #[test]
    fn deltas_of_text_are_text((old, new) in texts()) {
        check(old.as_bytes(), new.as_bytes());
    }
}
