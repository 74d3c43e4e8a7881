//! Tests which tags a filter matches, equally in both encodings, and which filters are invalid.

mod oracle;

use proptest::prelude::*;
use prost::Message as _;
use serde_json::{Value, json};
use veche_centrifuge::{
    FILTER_BYTES_MAX, FILTER_DEPTH_MAX, FILTER_NODES_MAX, FilterError, PublicationData, TagsFilter,
};

/// Decodes a filter from both encodings, and checks that the results are equal.
#[track_caller]
fn read(filter: &Value) -> Result<TagsFilter, FilterError> {
    let text = filter.to_string();
    let of_json = TagsFilter::read(PublicationData::Json(&text));
    let oracle: oracle::FilterNode =
        serde_json::from_value(filter.clone()).expect("the oracle's JSON");
    let of_protobuf = TagsFilter::read(PublicationData::Binary(&oracle.encode_to_vec()));
    assert_eq!(of_json, of_protobuf, "{filter}");
    of_json
}

fn passes(filter: &TagsFilter, tags: &[(&str, &str)]) -> bool {
    filter.matches(|name| tags.iter().find(|tag| tag.0 == name).map(|tag| tag.1))
}

/// Checks which values of the tag `k` match the filter, and whether a publication without the tag
/// does.
#[track_caller]
fn check(filter: &Value, values: &[&str], passing: &[&str], without: bool) {
    let filter = read(filter).expect("a filter");
    for value in values {
        let expected = passing.contains(value);
        assert_eq!(
            passes(&filter, &[("other", "x"), ("k", value)]),
            expected,
            "{filter:?} {value}"
        );
    }
    assert_eq!(passes(&filter, &[("other", "x")]), without, "{filter:?}");
    assert_eq!(passes(&filter, &[]), without, "{filter:?}");
}

#[test]
fn comparisons() {
    let one = |cmp: &str, val: &str| json!({ "key": "k", "cmp": cmp, "val": val });
    let many = |cmp: &str, vals: &[&str]| json!({ "key": "k", "cmp": cmp, "vals": vals });
    let texts = ["", "a", "ab", "b", "cab", "A"];
    check(&one("eq", "ab"), &texts, &["ab"], false);
    check(&one("neq", "ab"), &texts, &["", "a", "b", "cab", "A"], true);
    check(&many("in", &["a", "b"]), &texts, &["a", "b"], false);
    check(
        &many("nin", &["a", "b"]),
        &texts,
        &["", "ab", "cab", "A"],
        true,
    );
    // As in Centrifugo: a missing tag counts as empty.
    check(&many("in", &["a", ""]), &texts, &["", "a"], true);
    check(
        &many("nin", &["a", ""]),
        &texts,
        &["ab", "b", "cab", "A"],
        false,
    );
    check(&json!({ "key": "k", "cmp": "ex" }), &texts, &texts, false);
    check(&json!({ "key": "k", "cmp": "nex" }), &texts, &[], true);
    check(&one("sw", "a"), &texts, &["a", "ab"], false);
    check(&one("ew", "b"), &texts, &["ab", "b", "cab"], false);
    check(&one("ct", "a"), &texts, &["a", "ab", "cab"], false);
    let numbers = ["-3", "1.5", "2", "2.00", "10", "", "two", "1e1"];
    check(&one("lt", "2"), &numbers, &["-3", "1.5"], false);
    check(
        &one("lte", "2.0"),
        &numbers,
        &["-3", "1.5", "2", "2.00"],
        false,
    );
    check(&one("gt", "+2"), &numbers, &["10"], false);
    check(&one("gte", "2"), &numbers, &["2", "2.00", "10"], false);
    check(&one("gte", "two"), &numbers, &[], false);
}

#[test]
fn combinations() {
    let is = |val: &str| json!({ "key": "k", "cmp": "eq", "val": val });
    let begins = |val: &str| json!({ "key": "k", "cmp": "sw", "val": val });
    let of = |op: &str, nodes: &[Value]| json!({ "op": op, "nodes": nodes });
    let texts = ["a", "ab", "ac", "b"];
    let not_ab = of("not", &[is("ab")]);
    check(
        &of("and", &[begins("a"), not_ab.clone()]),
        &texts,
        &["a", "ac"],
        false,
    );
    check(&of("or", &[is("b"), is("ac")]), &texts, &["ac", "b"], false);
    check(&not_ab, &texts, &["a", "ac", "b"], true);
    let both = of("or", &[of("and", &[begins("a"), not_ab]), is("b")]);
    check(&of("not", &[both]), &texts, &["ab"], true);
    check(&of("and", &[is("a")]), &texts, &["a"], false);
}

#[test]
fn invalid_filters_are_rejected() {
    let leaf = json!({ "key": "k", "cmp": "eq", "val": "v" });
    for filter in [
        json!({}),
        json!({ "key": "k" }),
        json!({ "key": "k", "cmp": "eq" }),
        json!({ "key": "k", "cmp": "eq", "vals": ["v"] }),
        json!({ "key": "k", "cmp": "eq", "val": "v", "vals": ["v"] }),
        json!({ "cmp": "eq", "val": "v" }),
        json!({ "key": "k", "cmp": "in", "val": "v" }),
        json!({ "key": "k", "cmp": "in", "vals": [] }),
        json!({ "key": "k", "cmp": "nin", "val": "v", "vals": ["v"] }),
        json!({ "key": "k", "cmp": "ex", "val": "v" }),
        json!({ "key": "k", "cmp": "nex", "vals": ["v"] }),
        json!({ "key": "k", "cmp": "like", "val": "v" }),
        json!({ "op": "and" }),
        json!({ "op": "or", "nodes": [] }),
        json!({ "op": "not", "nodes": [leaf, leaf] }),
        json!({ "op": "xor", "nodes": [leaf] }),
        json!({ "op": "and", "nodes": [leaf, {}] }),
    ] {
        assert_eq!(read(&filter), Err(FilterError), "{filter}");
    }
    // Without a key only existence can be tested.
    assert!(read(&json!({ "cmp": "nex" })).is_ok());
    for text in [
        "",
        "[]",
        "null",
        "7",
        "{",
        "{}{}",
        r#"{"key":7}"#,
        r#"{"op":"and","nodes":{}}"#,
        r#"{"op":"and","nodes":[[]]}"#,
    ] {
        assert_eq!(
            TagsFilter::read(PublicationData::Json(text)),
            Err(FilterError),
            "{text}"
        );
    }
    for bytes in [
        &b""[..],
        b"\x08\x01",
        b"\x0a\x05and",
        b"\x12\x01\xff",
        b"\x32\x00",
        b"\x07",
    ] {
        assert_eq!(
            TagsFilter::read(PublicationData::Binary(bytes)),
            Err(FilterError),
            "{bytes:?}"
        );
    }
    assert_eq!(
        TagsFilter::read(PublicationData::Text("{}")),
        Err(FilterError)
    );
}

#[test]
fn limits() {
    let leaf = || json!({ "key": "k", "cmp": "ex" });
    let deep =
        |depth: usize| (1..depth).fold(leaf(), |inner, _| json!({ "op": "not", "nodes": [inner] }));
    assert!(read(&deep(FILTER_DEPTH_MAX)).is_ok());
    assert_eq!(read(&deep(FILTER_DEPTH_MAX + 1)), Err(FilterError));
    let wide = |count: usize| json!({ "op": "or", "nodes": vec![leaf(); count - 1] });
    assert!(read(&wide(FILTER_NODES_MAX)).is_ok());
    assert_eq!(read(&wide(FILTER_NODES_MAX + 1)), Err(FilterError));
    let values = |count: usize| json!({ "key": "k", "cmp": "in", "vals": vec!["v"; count] });
    assert!(read(&values(128)).is_ok());
    assert_eq!(read(&values(129)), Err(FilterError));
    let long = |bytes: usize| {
        let filter = json!({ "key": "k", "cmp": "eq", "val": "" }).to_string();
        filter.replace("\"\"", &format!("\"{}\"", "v".repeat(bytes - filter.len())))
    };
    assert!(TagsFilter::read(PublicationData::Json(&long(FILTER_BYTES_MAX))).is_ok());
    assert_eq!(
        TagsFilter::read(PublicationData::Json(&long(FILTER_BYTES_MAX + 1))),
        Err(FilterError)
    );
    // The deepest nesting that fits into the maximum length. Decoding it must not exhaust the stack.
    let mut nested = Vec::new();
    while nested.len() < FILTER_BYTES_MAX - 8 {
        let mut length = nested.len();
        let mut outer = vec![0x32];
        while length >= 0x80 {
            outer.push(length as u8 | 0x80);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.extend_from_slice(&nested);
        nested = outer;
    }
    assert_eq!(
        TagsFilter::read(PublicationData::Binary(&nested)),
        Err(FilterError)
    );
}

fn node() -> impl Strategy<Value = oracle::FilterNode> {
    let text = "[ab]{0,2}";
    let cmp = prop::sample::select(vec![
        "", "eq", "neq", "in", "nin", "ex", "nex", "sw", "ew", "ct", "lt", "gte", "x",
    ]);
    let leaf =
        (text, cmp, text, prop::collection::vec(text, 0..3)).prop_map(|(key, cmp, val, vals)| {
            let cmp = cmp.to_owned();
            oracle::FilterNode {
                key,
                cmp,
                val,
                vals,
                ..Default::default()
            }
        });
    leaf.prop_recursive(10, 80, 4, |inner| {
        let op = prop::sample::select(vec!["and", "or", "not", ""]);
        (op, prop::collection::vec(inner, 0..4)).prop_map(|(op, nodes)| {
            let op = op.to_owned();
            oracle::FilterNode {
                op,
                nodes,
                ..Default::default()
            }
        })
    })
}

proptest! {
    #[test]
    fn both_encodings_mean_the_same(node in node(), tags in prop::collection::vec(("[ab]{0,2}", "[ab0-9]{0,2}"), 0..3)) {
        let filter = serde_json::to_value(&node).expect("JSON");
        if let Ok(filter) = read(&filter) {
            let tags: Vec<_> = tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            passes(&filter, &tags);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = TagsFilter::read(PublicationData::Binary(&bytes));
        if let Ok(text) = str::from_utf8(&bytes) {
            let _ = TagsFilter::read(PublicationData::Json(text));
        }
    }
}
