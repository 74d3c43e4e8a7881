//! The test vectors: frames for tests of every implementation of the protocol.
#![allow(dead_code, reason = "each test file uses a part")]

use std::path::Path;

use serde_json::{Map, Value};
use veche_runtime::wire::EventName;

/// Files of test vectors with valid frames.
pub(crate) const GOOD: [&str; 4] = ["hello", "events", "answers", "calls"];

/// A test vector: one frame.
pub(crate) struct Vector {
    fields: Map<String, Value>,
}

impl Vector {
    pub(crate) fn name(&self) -> &str {
        self.text("name").expect("a vector has a name")
    }

    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field)?.as_str()
    }

    pub(crate) fn is_of_worker(&self) -> bool {
        match self.text("from") {
            Some("worker") => true,
            Some("veche") => false,
            other => panic!("{}: from {other:?}", self.name()),
        }
    }

    /// Returns the bytes of the frame as they are sent.
    pub(crate) fn wire(&self) -> Vec<u8> {
        hex(self.text("wire").expect("a vector has its bytes"))
    }

    /// Returns the decoded head.
    pub(crate) fn head(&self) -> Option<&Value> {
        self.fields.get("head")
    }

    pub(crate) fn payload(&self) -> Vec<u8> {
        match self.text("payload_hex") {
            Some(bytes) => hex(bytes),
            None => self.text("payload").unwrap_or_default().into(),
        }
    }

    /// Returns the name of the event with this id, if the vector's frame refers to the event in its
    /// field `id` or `event`.
    pub(crate) fn in_hand(&self, id: u64) -> Option<EventName> {
        let named = self.head()?;
        let is_it = ["id", "event"]
            .iter()
            .any(|field| named.get(field).and_then(Value::as_u64) == Some(id));
        let event = self.fields.get("to").filter(|_| is_it)?;
        Some(serde_json::from_value(event.clone()).expect("the name of an event"))
    }
}

fn hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes
        .map(|byte| byte.expect("two hexadecimal digits"))
        .collect()
}

/// Returns the test vectors of a file.
pub(crate) fn vectors(file: &str) -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("vectors/{file}.jsonl"));
    let text = std::fs::read_to_string(path).expect("a file of vectors");
    let lines = text.lines().map(|line| Vector {
        fields: serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{file}: {line}: {error}")),
    });
    let vectors: Vec<Vector> = lines.collect();
    assert!(!vectors.is_empty(), "{file} has no vectors");
    vectors
}

/// Returns a test vector by its name.
pub(crate) fn vector(file: &str, name: &str) -> Vector {
    let found = vectors(file).into_iter().find(|one| one.name() == name);
    found.unwrap_or_else(|| panic!("{file}: no vector {name:?}"))
}
