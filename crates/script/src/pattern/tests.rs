//! Tests the matcher: matches, errors and costs.

use super::*;

fn budget(steps: u64) -> StepBudget {
    StepBudget::new(steps, || false)
}

/// Returns the first match in `subject` as text: the whole match and its captures, with `@` before a position; `-` for
/// no match; `!` and the error.
fn shown(pattern: &[u8], subject: &[u8]) -> String {
    let pattern = Pattern::new(pattern, Caret::Anchors);
    let mut matcher = Matcher::new(&pattern, subject, budget(100_000));
    let found = matcher.find(0).and_then(|found| {
        let Some(whole) = found else {
            return Ok("-".to_owned());
        };
        let mut text = String::from_utf8_lossy(&subject[whole.clone()]).into_owned();
        for index in 0..matcher.captures_count() {
            text += "|";
            match matcher.capture(index, &whole)? {
                Capture::Text(range) => text += &String::from_utf8_lossy(&subject[range]),
                Capture::Position(at) => text += &format!("@{}", at + 1),
            }
        }
        Ok(text)
    });
    found.unwrap_or_else(|error| format!("!{error}"))
}

#[track_caller]
fn check(rows: &[(&str, &str, &str)]) {
    for (pattern, subject, expected) in rows {
        let shown = shown(pattern.as_bytes(), subject.as_bytes());
        assert_eq!(&shown, expected, "{pattern:?} on {subject:?}");
    }
}

#[test]
fn matches_single_bytes() {
    check(&[
        ("", "abc", ""),
        ("b", "abc", "b"),
        ("bc", "abc", "bc"),
        ("x", "abc", "-"),
        ("a.c", "xabc", "abc"),
        ("%a%d", "1a2", "a2"),
        ("%A", "a1", "1"),
        ("%w%W", "a_", "a_"),
        ("%s", "a\u{b}", "\u{b}"),
        ("%p%p", "a!~", "!~"),
        ("%x%X", "fg", "fg"),
        ("%u%l%U", "AbC", "-"),
        ("%c", "a\u{7f}", "\u{7f}"),
        ("%g", " a", "a"),
        ("%a", "é", "-"),
        ("%.%%%]", "a.%]", ".%]"),
        ("%q", "q", "q"),
        ("%z", "a\0b", "\0"),
        ("%Z", "\0b", "b"),
        ("a\0b", "a", "a"),
    ]);
}

#[test]
fn matches_sets() {
    check(&[
        ("[abc]+", "xxcab", "cab"),
        ("[^abc]+", "abxy", "xy"),
        ("[a-c]+", "xbd", "b"),
        ("[a%d-]+", "x-1a", "-1a"),
        ("[]]", "a]", "]"),
        ("[^]]", "]a", "a"),
        ("[]-a]+", "]^_`ab", "]^_`a"),
        ("[a-]+", "-a-", "-a-"),
        ("[--/]+", "a-./", "-./"),
        ("[z-a]", "m", "-"),
        ("[%a-z]+", "!-z", "-z"),
        ("[%]]", "]", "]"),
        ("[a-%%]]", "]]", "]]"),
        ("[a-%%]", "a]", "]"),
        ("[^%s]+", "  a b", "a"),
        ("[[]", "[", "["),
    ]);
}

#[test]
fn repeats() {
    check(&[
        ("a*", "aaab", "aaa"),
        ("a*", "b", ""),
        ("a+b", "aab", "aab"),
        ("a-b", "aab", "aab"),
        ("a-", "aab", ""),
        ("a?b", "aab", "ab"),
        ("a?a?aa", "aa", "aa"),
        (".*b", "abcbc", "abcb"),
        (".-b", "abcbc", "ab"),
        ("<.->", "a<b><c>", "<b>"),
        ("<.+>", "a<b><c>", "<b><c>"),
        ("**", "a**", ""),
        ("*", "a*", "*"),
        ("+a", "+a", "+a"),
        ("a.-$", "xabc", "abc"),
        ("[ab]-c", "xabac", "abac"),
        (".*%d", "a1b2c", "a1b2"),
        ("%w+%s+%w+", "one  two", "one  two"),
        ("a*a", "aaa", "aaa"),
    ]);
}

#[test]
fn anchors_and_frontiers() {
    check(&[
        ("^a", "ba", "-"),
        ("^b", "ba", "b"),
        ("a$", "aab", "-"),
        ("b$", "aab", "b"),
        ("^$", "", ""),
        ("$", "ab", ""),
        ("a$b", "a$b", "a$b"),
        ("$*b", "a$$b", "$$b"),
        ("a^", "a^", "a^"),
        ("^^a", "^a", "^a"),
        ("%f[%w]%w+", "  one two", "one"),
        ("%f[%W]", "ab", ""),
        ("%f[%z]", "ab", ""),
        ("%f[%z]", "", "-"),
        ("%f[%z]", "\u{1}", ""),
        ("%f[%Z]", "\u{1}", ""),
        ("%f[^a]b", "ab", "b"),
        ("%f[]]]", "a]", "]"),
    ]);
}

#[test]
fn captures() {
    check(&[
        ("(a)(b)", "ab", "ab|a|b"),
        ("((a)(b))", "ab", "ab|ab|a|b"),
        ("()a()", "xa", "a|@2|@3"),
        ("(a*(.)%w(%s*))", "aab1 ", "aab1 |aab1 |b| "),
        ("(%w+)=(%w*)", "key=", "key=|key|"),
        ("(.)%1", "abccd", "cc|c"),
        ("(.-)%1$", "abab", "abab|ab"),
        ("()%1", "aa", "-"),
        ("(['\"]).-%1", "a'b\"c'd", "'b\"c'|'"),
        ("%b()", "a(b(c)d)e)", "(b(c)d)"),
        ("%b()", "(()", "()"),
        ("%bxx", "axbxc", "xbx"),
        ("%b()*", "(a)*", "(a)*"),
        ("(a?)(a?)b", "ab", "ab|a|"),
    ]);
}

#[test]
fn refuses_what_it_reaches() {
    check(&[
        ("%", "a", "!malformed pattern (ends with '%')"),
        ("b%", "a", "-"),
        ("[a", "a", "!malformed pattern (missing ']')"),
        ("[]", "a", "!malformed pattern (missing ']')"),
        ("[^]", "a", "!malformed pattern (missing ']')"),
        ("[a%]", "a", "!malformed pattern (missing ']')"),
        ("[%", "a", "!malformed pattern (missing ']')"),
        ("[a\0]", "a", "!malformed pattern (missing ']')"),
        ("%fa", "a", "!missing '[' after '%f' in pattern"),
        ("%f[a", "a", "!malformed pattern (missing ']')"),
        ("%b", "a", "!unbalanced pattern"),
        ("%bx", "a", "!unbalanced pattern"),
        ("(a", "a", "!unfinished capture"),
        ("(a", "b", "-"),
        ("a)", "a", "!invalid pattern capture"),
        ("a)", "b", "-"),
        ("%1", "a", "!invalid capture index"),
        ("%0", "a", "!invalid capture index"),
        ("(a%1)", "a", "!invalid capture index"),
    ]);
    let many = "()".repeat(33);
    assert_eq!(shown(many.as_bytes(), b""), "!too many captures");
    assert_eq!(
        shown("a?".repeat(201).as_bytes(), &[b'a'; 300]),
        "!pattern too complex"
    );
    assert_eq!(shown("a?".repeat(201).as_bytes(), b"aaa"), "aaa");
    assert_eq!(shown("a*".repeat(199).as_bytes(), b"aaa"), "aaa");
    assert_eq!(
        shown("a*".repeat(200).as_bytes(), b""),
        "!pattern too complex"
    );
}

#[test]
fn refuses_long_patterns() {
    let long = "a".repeat(parse::TEXT_BYTES_MAX);
    assert_eq!(shown(long.as_bytes(), b"a"), "-");
    assert_eq!(shown((long + "a").as_bytes(), b"a"), "!pattern too complex");
}

fn all_matches(pattern: &str, subject: &str, caret: Caret) -> Vec<(usize, usize)> {
    let pattern = Pattern::new(pattern.as_bytes(), caret);
    let mut matcher = Matcher::new(&pattern, subject.as_bytes(), budget(100_000));
    let mut next = Some(0);
    std::iter::from_fn(|| matcher.find_next(&mut next).expect("a whole pattern"))
        .map(|found| (found.start, found.end))
        .collect()
}

#[test]
fn a_series_finds_no_empty_match_twice() {
    let all = |pattern, subject| all_matches(pattern, subject, Caret::Anchors);
    assert_eq!(all("%a+", "one two"), [(0, 3), (4, 7)]);
    assert_eq!(all("a*", "aab"), [(0, 2), (2, 2), (3, 3)]);
    assert_eq!(all("", "ab"), [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(all("^a", "aa"), [(0, 1)]);
    assert_eq!(all_matches("^a", "a^a", Caret::IsPlain), [(1, 3)]);
}

#[test]
fn replacements_name_captures() {
    let replaced = |pattern: &str, template: &str| {
        let pattern = Pattern::new(pattern.as_bytes(), Caret::Anchors);
        let mut matcher = Matcher::new(&pattern, b"key=value", budget(1000));
        let whole = matcher.find(0).unwrap().unwrap();
        let mut out = Vec::new();
        matcher
            .append_replacement(template.as_bytes(), &whole, &mut out, 20)
            .map(|()| String::from_utf8(out).unwrap())
    };
    assert_eq!(replaced("(%w+)=(%w+)", "%2=%1").as_deref(), Ok("value=key"));
    assert_eq!(replaced("=()", "<%0%1%%%a>").as_deref(), Ok("<=5%a>"));
    assert_eq!(replaced("%w+", "%1%").as_deref(), Ok("key\0"));
    assert_eq!(replaced("%w+", "%2"), Err(Error::CaptureIndex));
    assert_eq!(replaced("(%w+)=(v", "%2"), Err(Error::Unfinished));
    assert_eq!(replaced("(%w+)=(v", "%1").as_deref(), Ok("key"));
    assert_eq!(replaced(".+", "%0%0%0%0"), Err(Error::TooLarge));
}

#[test]
fn a_plain_text_is_found() {
    let find = |subject: &[u8], needle: &[u8], from| find_plain(subject, needle, from, || false);
    assert_eq!(find(b"a.b.c", b".c", 0), Ok(Some(3)));
    assert_eq!(find(b"a.b.c", b".", 2), Ok(Some(3)));
    assert_eq!(find(b"abc", b"", 3), Ok(Some(3)));
    assert_eq!(find(b"abc", b"abcd", 0), Ok(None));
}

/// Places the needle across the ends of the parts in which the subject is searched. Some needles are
/// longer than the head by which a needle is searched first.
#[test]
fn a_plain_text_is_found_wherever_parts_end() {
    for needle_bytes in [1, 2, 5000, HEAD_BYTES, HEAD_BYTES + 1, 2 * HEAD_BYTES] {
        // The head of the needle occurs only once in the needle.
        let byte = |at: usize| (at * at % 251) as u8 | 0x80;
        let needle: Vec<u8> = (0..needle_bytes).map(byte).collect();
        for part in [SEARCHED_PER_LOOK, 2 * SEARCHED_PER_LOOK] {
            // The head of the needle starts or ends near the boundary of a part.
            let head = HEAD_BYTES.min(needle_bytes);
            for before in (part - head - 2..part - head + 3).chain(part - 2..part + 3) {
                let mut subject = vec![b'.'; before];
                subject.extend_from_slice(&needle);
                let found = find_plain(&subject, &needle, 0, || false);
                assert_eq!(found, Ok(Some(before)), "{needle_bytes} at {before}");
                subject.pop();
                let found = find_plain(&subject, &needle, 0, || false);
                assert_eq!(found, Ok(None), "{needle_bytes} at {before}");
            }
        }
    }
}

/// A long search checks whether it may continue; a short one does not.
#[test]
fn a_search_can_be_stopped() {
    let stopped = |pattern: &str, subject: &[u8]| {
        let pattern = Pattern::new(pattern.as_bytes(), Caret::Anchors);
        let budget = StepBudget::new(5_000_000, || true);
        Matcher::new(&pattern, subject, budget).find(0)
    };
    let long = vec![b'a'; 2 * SEARCHED_PER_LOOK];
    assert_eq!(stopped(".-b", &long), Err(Error::Stopped));
    assert_eq!(stopped("a*a*a*b", &long), Err(Error::Stopped));
    assert_eq!(stopped("%a+", b"abc"), Ok(Some(0..3)));
    assert_eq!(find_plain(&long, b"b", 0, || true), Err(Error::Stopped));
    assert_eq!(find_plain(b"ab", b"b", 0, || true), Ok(Some(1)));
    let mut needle = vec![b'a'; HEAD_BYTES];
    needle.push(b'b');
    assert_eq!(find_plain(&long, &needle, 0, || true), Err(Error::Stopped));
}

/// Returns the steps of a search through `subject`; `None` if `steps_max` were exceeded.
fn steps(pattern: &[u8], subject: &[u8], steps_max: u64) -> Option<u64> {
    let pattern = Pattern::new(pattern, Caret::Anchors);
    let mut matcher = Matcher::new(&pattern, subject, budget(steps_max));
    let mut next = Some(0);
    loop {
        match matcher.find_next(&mut next) {
            Ok(Some(_)) => {}
            Err(Error::TooCostly) => return None,
            _ => return Some(steps_max - matcher.budget().left()),
        }
    }
}

#[test]
fn costly_patterns_end() {
    let letters = vec![b'a'; 30_000];
    let brackets = vec![b'('; 100_000];
    let rows: [(String, &[u8]); 8] = [
        ("a*".repeat(20) + "b", &letters),
        (".-".repeat(4) + "b", &letters[..5000]),
        (".-.-.-.-b$".to_owned(), &letters[..5000]),
        ("a?".repeat(100) + &"a".repeat(100) + "b", &letters),
        ("%b()".to_owned(), &brackets),
        ("(.*)%1%1b".to_owned(), &letters),
        ("(.-)%1b".to_owned(), &letters),
        ("[ab]*[ac]*[ad]*x".to_owned(), &letters),
    ];
    for (pattern, subject) in rows {
        assert_eq!(
            steps(pattern.as_bytes(), subject, 10_000_000),
            None,
            "{pattern}"
        );
    }
}

#[test]
fn ordinary_patterns_are_cheap() {
    let text = "key=value; other=\"thing\"\n".repeat(40);
    for pattern in [
        "(%w+)=(%w+)",
        "[^\n]+",
        "\"(.-)\"",
        "%s+",
        "^%s*(.-)%s*$",
        "key=",
        "%f[%w]%w+",
    ] {
        let steps = steps(pattern.as_bytes(), text.as_bytes(), 10_000_000).unwrap();
        assert!(steps < 16 * text.len() as u64, "{pattern} {steps}");
    }
}

/// Runs on a stack that has no room for a call per byte.
#[test]
fn a_mebibyte_overflows_nothing() {
    let run = || {
        const MEBIBYTE: usize = 1 << 20;
        let pieces = [
            "a", "(", ")", "()", "(a)", "a?", "a*", "a-", "a+", ".-", "[", "[a]", "[^", "%", "%b",
            "%bab", "%f", "%f[a]", "%1", "(a)%1", "$", "^", "\0", "%a", "a%a",
        ];
        for subject in [vec![b'a'; MEBIBYTE], b"ab".repeat(MEBIBYTE / 2), Vec::new()] {
            for piece in pieces {
                let pattern = |bytes: usize| piece.repeat(bytes / piece.len());
                for whole in [
                    pattern(MEBIBYTE),
                    pattern(parse::TEXT_BYTES_MAX),
                    pattern(parse::TEXT_BYTES_MAX - 1) + "$",
                    piece.repeat(90) + "x",
                ] {
                    steps(whole.as_bytes(), &subject, 100_000);
                    Pattern::new(whole.as_bytes(), Caret::Anchors).harmless_subject_bytes(1000);
                }
            }
        }
    };
    std::thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn harmless_lengths() {
    let harmless = |pattern: &str| {
        Pattern::new(pattern.as_bytes(), Caret::Anchors).harmless_subject_bytes(300_000)
    };
    assert_eq!(harmless("x"), Some(1024));
    assert_eq!(harmless("%s+"), Some(1024));
    assert_eq!(harmless("^%d+$"), Some(1024));
    assert_eq!(harmless("(%w+)=(%w+)"), Some(256));
    assert_eq!(harmless(".*/(.*)"), Some(256));
    assert_eq!(harmless_searched_bytes(b"needle", 300_000), Some(1 << 16));
    assert_eq!(harmless_searched_bytes(b"needle", 0), None);
    assert_eq!(harmless(".-.-.-.-.-.-b"), None);
    assert_eq!(harmless(&("a?".repeat(40) + "b")), None);
}

#[test]
fn harmless_patterns_are_cheap() {
    const STEPS: u64 = 1 << 14;
    let mut rng = fastrand::Rng::with_seed(4);
    let pieces = [
        "a", "b", ".", "[ab]", "%a", "a*", "b-", ".-", "a?", "[ab]+", "(", ")", "%bab", "(a)%1",
        "%f[a]", "$",
    ];
    let mut tried = 0;
    for _ in 0..20_000 {
        let pattern: String = (0..rng.usize(1..6))
            .map(|_| pieces[rng.usize(..pieces.len())])
            .collect();
        let bytes = Pattern::new(pattern.as_bytes(), Caret::Anchors).harmless_subject_bytes(STEPS);
        let Some(bytes) = bytes else { continue };
        let bytes = bytes.min(4096);
        let letters = rng.usize(1..3);
        let subject: Vec<u8> = (0..bytes).map(|_| b"ab"[rng.usize(..letters)]).collect();
        // Our matcher may count a few steps where the estimate for LuaJIT counts none.
        assert!(
            steps(pattern.as_bytes(), &subject, 4 * STEPS).is_some(),
            "{pattern:?} on {bytes} bytes"
        );
        tried += 1;
    }
    assert!(tried > 10_000, "{tried}");
}
