//! Tests of request heads. Every row of `vectors/http_heads.json` is parsed whole, byte by byte and split at random.
//! Further tests check properties of all heads.
//!
//! In the table each character stands for a byte (U+00E9 is 0xE9), and `["a", 3]` stands for `aaa`.

use proptest::prelude::*;
use serde_json::Value;
use veche_proto::http::{
    EtagComparison, Framing, Head, HeadLimits, HeadScan, HttpError, Method, Query,
    etag_list_matches, parse_head, read_head,
};

const LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 16 * 1024,
    headers_max: 64,
    target_bytes_max: 8 * 1024,
    body_bytes_max: 1 << 20,
};

#[test]
fn every_row_whole_and_split() {
    let rows: Vec<Value> =
        serde_json::from_str(include_str!("../vectors/http_heads.json")).unwrap();
    assert!(rows.len() > 200);
    let mut rng = fastrand::Rng::with_seed(7);
    for row in &rows {
        let name = row["name"].as_str().unwrap();
        let mut wire = bytes(&row["wire"]);
        check(row, &format!("{name}, whole"), read_split(&wire, &[]));
        let every_byte: Vec<usize> = (1..wire.len()).collect();
        check(
            row,
            &format!("{name}, byte by byte"),
            read_split(&wire, &every_byte),
        );
        for _ in 0..8 {
            let splits = random_splits(&mut rng, wire.len());
            check(
                row,
                &format!("{name}, split at {splits:?}"),
                read_split(&wire, &splits),
            );
        }
        if row["status"].is_null() {
            check(
                row,
                &format!("{name}, parsed alone"),
                Some(parse_head(&wire, &LIMITS)),
            );
            let end = wire.len();
            wire.extend_from_slice(b"GET /next HTTP/1.1\r\n\r\n\0\n");
            let more = parse_head(&wire, &LIMITS);
            assert!(more.is_err(), "{name}, parsed with what follows it");
            let (_, taken) = read_head(&mut HeadScan::default(), &wire, &LIMITS)
                .unwrap()
                .unwrap();
            assert_eq!(taken, end, "{name}, pipelined");
        }
    }
}

#[test]
fn answers_what_is_asked_of_a_head() {
    let wire = b"GET /a%20b?user=te%73t+er&x&user=2&bad=%ff HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
        Cookie: a=1; b=\"2\";c; d=x=y\r\nX-List: a, ,b\r\ncookie: a=3; e=4\r\nx-list: C\r\n\
        X-Raw: \xff\r\n\r\n";
    let head = parse_head(wire, &LIMITS).unwrap();
    assert_eq!(head.method, Method::Get);
    assert_eq!((&*head.path, head.host), ("/a b", "127.0.0.1:8080"));
    assert_eq!(head.query("user").as_deref(), Some("test er"));
    assert_eq!(head.query("x").as_deref(), Some(""));
    assert_eq!(head.query("bad"), None);
    assert_eq!(head.query_all("user").collect::<Vec<_>>(), ["test er", "2"]);
    assert_eq!(
        ["a", "b", "c", "d", "e", "A"].map(|name| head.cookie(name)),
        [Some("1"), Some("2"), None, Some("x=y"), Some("4"), None]
    );
    assert!(head.header_has_token("X-List", "B") && head.header_has_token("x-list", "c"));
    assert!(!head.header_has_token("x-list", ""));
    assert_eq!(
        head.header_all("x-list").collect::<Vec<_>>(),
        ["a, ,b", "C"]
    );
    assert_eq!(
        (head.header("x-raw"), head.header_bytes("x-raw")),
        (None, Some(&b"\xff"[..]))
    );
    assert_eq!(head.header("x-none"), None);
    assert_eq!(head.headers().len(), 6);
    assert_eq!(
        head.headers().next(),
        Some(("Host", &b"127.0.0.1:8080"[..]))
    );
    let shown = format!("{head:?}");
    assert!(
        !shown.contains("user") && !shown.contains("a=1"),
        "secrets in {shown}"
    );
}

#[test]
fn finds_cookies_in_bad_headers() {
    let rows: &[(&str, Option<&str>)] = &[
        ("", None),
        ("a", None),
        ("a=", Some("")),
        ("=;;;=", None),
        ("=a", None),
        (";;a=1", Some("1")),
        ("a =1", Some("1")),
        ("\ta\t=\t1\t;", Some("1")),
        ("a=\"", Some("\"")),
        ("a=\"\"", Some("")),
        ("a=\"x", Some("\"x")),
        ("aa=1; a=2", Some("2")),
        ("a=1; a=2", Some("1")),
        ("b=a=1", None),
        ("a==1", Some("=1")),
    ];
    for (cookie, expected) in rows {
        let wire = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n");
        let head = parse_head(wire.as_bytes(), &LIMITS).unwrap();
        assert_eq!(head.cookie("a"), *expected, "{cookie:?}");
    }
    let many = format!("Cookie: {}a=1", "x=y; ".repeat(3000));
    let wire = format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n\r\n");
    assert_eq!(
        parse_head(wire.as_bytes(), &LIMITS).unwrap().cookie("a"),
        Some("1")
    );
}

#[test]
fn decodes_queries() {
    let rows: &[(&str, Option<&str>)] = &[
        ("", None),
        ("a", Some("")),
        ("a=", Some("")),
        ("&&a=1&", Some("1")),
        ("b=1&a=2&a=3", Some("2")),
        ("%61=1", Some("1")),
        ("a=%", Some("%")),
        ("a=%4", Some("%4")),
        ("a=%zz", Some("%zz")),
        ("a=%41%2b+%26", Some("A+ &")),
        ("a=1=2", Some("1=2")),
        ("a=\u{43f}%d0%bf", Some("\u{43f}\u{43f}")),
        ("a=%ff", None),
        ("a=%00", Some("\0")),
        ("a+=1", None),
        ("+a=1", None),
        ("=1", None),
    ];
    for (query, expected) in rows {
        assert_eq!(
            Query::new(query).find("a").as_deref(),
            *expected,
            "{query:?}"
        );
    }
    assert_eq!(Query::new("a%25=1").find("a%").as_deref(), Some("1"));
    assert_eq!(Query::new("a+b=1").find("a b").as_deref(), Some("1"));
    let all: Vec<_> = Query::new("a=1&%ff=2&b=%20").iter().collect();
    assert_eq!(all, [("a".into(), "1".into()), ("b".into(), " ".into())]);
}

#[test]
fn compares_entity_tags() {
    use EtagComparison::{Strong, Weak};
    let rows: &[(&str, &str, EtagComparison, bool)] = &[
        ("*", "\"a\"", Strong, true),
        (" * ", "W/\"a\"", Strong, true),
        ("\"a\"", "\"a\"", Strong, true),
        ("\"b\", \"a\"", "\"a\"", Strong, true),
        ("\"b\",,\t\"a\"", "\"a\"", Weak, true),
        ("W/\"a\"", "\"a\"", Strong, false),
        ("\"a\"", "W/\"a\"", Strong, false),
        ("W/\"a\"", "\"a\"", Weak, true),
        ("\"a\"", "W/\"a\"", Weak, true),
        ("\"b,\"a\"", "\"a\"", Weak, false),
        ("\"x, y\", \"a\"", "\"a\"", Weak, true),
        ("\"x, \\\"a\\\"\"", "\"a\"", Weak, false),
        ("a", "\"a\"", Weak, false),
        ("\"a", "\"a\"", Weak, false),
        ("w/\"a\"", "\"a\"", Weak, false),
        ("", "\"a\"", Weak, false),
        ("\"\"", "\"\"", Strong, true),
    ];
    for (list, etag, comparison, expected) in rows {
        assert_eq!(
            etag_list_matches(list, etag, *comparison),
            *expected,
            "{list} {etag} {comparison:?}"
        );
    }
}

/// Scanned bytes are not scanned again: the test changes bytes after their scan, and a second scan
/// would notice the change.
#[test]
fn a_head_byte_by_byte_takes_linear_time() {
    let limits = HeadLimits {
        head_bytes_max: 65_535,
        ..LIMITS
    };
    let start = b"GET / HTTP/1.1\r\nHost: a\r\n";
    let wire = [&start[..], b"X: ", &b"a ".repeat(32_700), b"\r\n\r\n"].concat();
    let mut scan = HeadScan::default();
    assert!(scan.find(start, &limits).unwrap().is_none());
    let mut spoilt = wire.clone();
    for end in start.len() + 1..wire.len() {
        spoilt[end - 2] = wire[end - 2];
        assert!(scan.find(&spoilt[..end], &limits).unwrap().is_none());
        // This makes the scanned bytes contain a bare LF, which a second scan would refuse.
        spoilt[end - 2] = b'\n';
    }
    assert_eq!(scan.find(&wire, &limits).unwrap(), Some(wire.len()));
    assert!(parse_head(&wire, &limits).is_ok());
}

proptest! {
    /// Heads with random changes give the same result whether they arrive whole, byte by byte or split at random.
    #[test]
    fn splits_never_change_the_answer(
        row in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let seeds = seeds();
        let mut wire = seeds[row.index(seeds.len())].clone();
        for (place, byte, kind) in edits {
            let place = place.index(wire.len());
            match kind {
                0 => wire[place] = byte,
                1 => wire.insert(place, byte),
                2 => wire.insert(place, *b"\r\n :,HCT01".get(byte as usize % 10).unwrap()),
                _ => drop(wire.remove(place)),
            }
            prop_assume!(!wire.is_empty());
        }
        let mut splits: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
        splits.sort_unstable();
        let every_byte: Vec<usize> = (1..wire.len()).collect();
        let whole = summary(read_split(&wire, &[]));
        prop_assert_eq!(&summary(read_split(&wire, &splits)), &whole);
        prop_assert_eq!(&summary(read_split(&wire, &every_byte)), &whole);
    }

    /// An accepted head has only header names and values that a lenient parser reads in the same way.
    #[test]
    fn what_passes_is_unambiguous(wire in prop::collection::vec(any::<u8>(), 0..200)) {
        let head = [b"POST / HTTP/1.1\r\nHost: a\r\n", &wire[..], b"\r\n\r\n"].concat();
        if let Ok(Some((head, _))) = read_head(&mut HeadScan::default(), &head, &LIMITS) {
            for (name, value) in head.headers() {
                prop_assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let rows: Vec<Value> =
        serde_json::from_str(include_str!("../vectors/http_heads.json")).unwrap();
    rows.iter()
        .map(|row| bytes(&row["wire"]))
        .filter(|wire| wire.len() < 400)
        .collect()
}

/// Parses a head that arrives in pieces, cut at `splits`. Returns `None` if it was never complete.
fn read_split<'b>(wire: &'b [u8], splits: &[usize]) -> Option<Result<Head<'b>, HttpError>> {
    let mut scan = HeadScan::default();
    splits.iter().copied().chain([wire.len()]).find_map(|end| {
        read_head(&mut scan, &wire[..end], &LIMITS)
            .map(|found| found.map(|(head, _)| head))
            .transpose()
    })
}

fn check(row: &Value, what: &str, result: Option<Result<Head<'_>, HttpError>>) {
    let result = result.unwrap_or_else(|| panic!("{what}: never complete"));
    if let Some(status) = row["status"].as_u64() {
        match result {
            Ok(head) => panic!("{what}: accepted as {head:?}"),
            Err(error) => assert_eq!(u64::from(error.status.0), status, "{what}: {error}"),
        }
        return;
    }
    let head = result.unwrap_or_else(|error| panic!("{what}: {} {error}", error.status.0));
    assert_eq!(
        head.method.as_str().as_bytes(),
        bytes(&row["method"]),
        "{what}"
    );
    assert_eq!(head.path.as_bytes(), bytes(&row["path"]), "{what}");
    for (field, found) in [("query", head.query), ("host", head.host)] {
        if !row[field].is_null() {
            assert_eq!(found.as_bytes(), bytes(&row[field]), "{what}: {field}");
        }
    }
    for (field, found) in [
        ("keep_alive", head.keep_alive),
        ("expect_continue", head.expect_continue),
    ] {
        if let Some(expected) = row[field].as_bool() {
            assert_eq!(found, expected, "{what}: {field}");
        }
    }
    match &row["framing"] {
        Value::Null => {}
        Value::Number(length) => assert_eq!(
            head.framing,
            Framing::Sized(length.as_u64().unwrap()),
            "{what}"
        ),
        Value::String(name) if name == "chunked" => {
            assert_eq!(head.framing, Framing::Chunked, "{what}")
        }
        _ => assert_eq!(head.framing, Framing::None, "{what}"),
    }
    for (name, value) in row["headers"].as_object().into_iter().flatten() {
        assert_eq!(
            head.header_bytes(name),
            Some(&bytes(value)[..]),
            "{what}: {name}"
        );
    }
}

/// Returns the content of a head as text, the status of its refusal, or `incomplete`.
fn summary(result: Option<Result<Head<'_>, HttpError>>) -> String {
    match result {
        None => "incomplete".to_owned(),
        Some(Err(error)) => format!("{}", error.status.0),
        Some(Ok(head)) => {
            format!(
                "{head:?} {} {:?} {:?}",
                head.query,
                head.expect_continue,
                head.headers().collect::<Vec<_>>()
            )
        }
    }
}

fn random_splits(rng: &mut fastrand::Rng, len: usize) -> Vec<usize> {
    let mut splits: Vec<usize> = (0..rng.usize(1..6)).map(|_| rng.usize(0..len)).collect();
    splits.sort_unstable();
    splits
}

fn bytes(value: &Value) -> Vec<u8> {
    let latin1 = |text: &str| {
        text.chars()
            .map(|c| u8::try_from(u32::from(c)).unwrap())
            .collect::<Vec<u8>>()
    };
    match value {
        Value::String(text) => latin1(text),
        Value::Array(parts) => parts
            .iter()
            .flat_map(|part| match part {
                Value::Array(run) => {
                    latin1(run[0].as_str().unwrap()).repeat(run[1].as_u64().unwrap() as usize)
                }
                other => bytes(other),
            })
            .collect(),
        other => panic!("{other} is not text"),
    }
}
