//! Compares the page docs/reference/runtime-protocol.md with the code: each example is the head of
//! a test vector, and each name is listed.

mod support;

use std::path::Path;

use serde_json::Value;
use support::{GOOD, vectors};
use veche_calls::CallErrorKind;
use veche_runtime::wire::{
    CALLS, EFFECTS, EventName, FrameKind, FrameLimits, PREFIX_BYTES, VERSION,
};

fn page() -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/runtime-protocol.md");
    std::fs::read_to_string(path).expect("the page")
}

#[test]
fn each_example_is_the_head_of_a_vector() {
    let page = page();
    let vectors: Vec<_> = GOOD.into_iter().flat_map(vectors).collect();
    let heads: Vec<&Value> = vectors.iter().filter_map(|vector| vector.head()).collect();
    let mut examples = 0;
    for block in page.split("```json\n").skip(1) {
        let (example, _) = block.split_once("\n```").expect("a block has an end");
        let example: Value =
            serde_json::from_str(example).unwrap_or_else(|error| panic!("{example}: {error}"));
        assert!(heads.contains(&&example), "no vector: {example}");
        examples += 1;
    }
    assert!(examples >= 20, "{examples}");
}

/// Returns the names in the first column of the table with a given head.
fn column(page: &str, head: &str) -> Vec<String> {
    let (_, rows) = page
        .split_once(head)
        .unwrap_or_else(|| panic!("no table {head:?}"));
    let rows = rows.lines().skip(2).take_while(|row| row.starts_with('|'));
    let names = rows.map(|row| row.split('`').nth(1).expect("a name").to_owned());
    names.collect()
}

#[test]
fn tables_have_each_event_effect_and_call_once() {
    let page = page();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let text = |name: &dyn Fn() -> Value| name().as_str().expect("a name").to_owned();
    let events = EventName::ALL
        .iter()
        .map(|event| text(&|| serde_json::json!(event)));
    let of = |head| sorted(column(&page, head));
    assert_eq!(of("| `event` | when |"), sorted(events.collect()));
    assert_eq!(
        of("| `effect` | fields |"),
        sorted(EFFECTS.map(str::to_owned).to_vec())
    );
    assert_eq!(
        of("| `call` | fields |"),
        sorted(CALLS.map(str::to_owned).to_vec())
    );
    for kind in FrameKind::ALL {
        let name = text(&|| serde_json::json!(kind));
        let is_there =
            page.contains(&format!("`{name}`")) || page.contains(&format!("\"type\":\"{name}\""));
        assert!(is_there, "{name}");
    }
    for kind in CallErrorKind::ALL {
        assert!(page.contains(&format!("`{}`", kind.name())), "{kind:?}");
    }
}

#[test]
fn fields_of_all_vectors_are_named() {
    let page = page();
    fn check(page: &str, value: &Value, within: &str) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    // Applications choose the names of the fields in these objects.
                    if matches!(within, "attributes" | "set" | "options") {
                        continue;
                    }
                    let is_named = page.contains(&format!("`{name}`"));
                    assert!(is_named, "{name} in {within:?} is not on the page");
                    check(page, value, name);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| check(page, value, within)),
            _ => {}
        }
    }
    for vector in GOOD.into_iter().flat_map(vectors) {
        check(&page, vector.head().expect("a head"), "");
    }
}

#[test]
fn numbers_are_those_of_the_code() {
    let page = page();
    let limits = FrameLimits::default();
    assert!(page.contains(&format!("Version {VERSION}.")));
    assert_eq!(PREFIX_BYTES, 8);
    assert!(page.contains("| 8– | the head |"));
    for number in [limits.head_bytes_max, limits.payload_bytes_max] {
        let digits = number.to_string();
        let groups: Vec<&str> = [
            &digits[..digits.len() - 6],
            &digits[digits.len() - 6..digits.len() - 3],
            &digits[digits.len() - 3..],
        ]
        .to_vec();
        assert!(page.contains(&groups.join(",")), "{number}");
    }
}
