//! Decodes each vector like the receiver of its frames, whole and in pieces, and encodes it like
//! the sender.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use support::{GOOD, Vector, vectors};
use veche_runtime::wire::{
    AnswerHead, CALLS, CallHead, CancelHead, EFFECTS, ErrorScope, EventHead, EventName, Frame,
    FrameDecoder, FrameError, FrameKind, FrameLimits, FromWorker, HelloHead, RefuseHead,
    ResultHead, ToWorker, WelcomeHead, encode,
};

/// Heads and payloads of frames.
type Frames = Vec<(Vec<u8>, Vec<u8>)>;

/// Decodes a stream split into pieces of the given lengths.
fn decode(wire: &[u8], mut piece: impl FnMut(usize) -> usize) -> Result<Frames, FrameError> {
    let mut decoder = FrameDecoder::new(FrameLimits::default());
    let mut frames = Vec::new();
    let mut rest = wire;
    while !rest.is_empty() {
        let (mut input, after) = rest.split_at(piece(rest.len()).clamp(1, rest.len()));
        while let Some(Frame { head, payload }) = decoder.decode(&mut input)? {
            frames.push((head.to_vec(), payload.to_vec()));
        }
        rest = after;
    }
    assert!(!decoder.is_within_frame());
    Ok(frames)
}

fn all_ways(wire: &[u8], mut check: impl FnMut(&str, Result<Frames, FrameError>)) {
    check("whole", decode(wire, |rest| rest));
    check("byte by byte", decode(wire, |_| 1));
    for size in 2..20 {
        check("in pieces", decode(wire, |rest| rest % size + 1));
    }
}

fn frame(vector: &Vector) -> (Vec<u8>, Vec<u8>) {
    let frames = decode(&vector.wire(), |rest| rest);
    let frames = frames.unwrap_or_else(|error| panic!("{}: {error}", vector.name()));
    let [frame] = frames.try_into().expect("one frame");
    frame
}

fn read_by_veche<'a>(
    vector: &Vector,
    head: &'a [u8],
    payload: &'a [u8],
) -> Result<FromWorker<'a>, (ErrorScope, String)> {
    let frame = Frame { head, payload };
    let read = FromWorker::read(frame, |id| vector.in_hand(id));
    read.map_err(|error| (error.scope, error.message))
}

#[test]
fn each_vector_is_one_frame_however_it_arrives() {
    for file in GOOD.into_iter().chain(["lenient"]) {
        for vector in vectors(file) {
            let name = vector.name();
            all_ways(&vector.wire(), |how, frames| {
                let frames = frames.unwrap_or_else(|error| panic!("{name}, {how}: {error}"));
                let [(head, payload)] = &frames[..] else {
                    panic!("{name}, {how}: {} frames", frames.len());
                };
                let head: Value = serde_json::from_slice(head).expect("JSON");
                assert_eq!(Some(&head), vector.head(), "{name}, {how}");
                assert_eq!(*payload, vector.payload(), "{name}, {how}");
            });
        }
    }
}

#[test]
fn frames_of_one_write_come_apart() {
    let all: Vec<Vector> = GOOD.into_iter().flat_map(vectors).collect();
    let wire: Vec<u8> = all.iter().flat_map(Vector::wire).collect();
    let expected: Vec<_> = all.iter().map(frame).collect();
    all_ways(&wire, |how, frames| {
        assert_eq!(frames.as_ref(), Ok(&expected), "{how}");
    });
}

#[test]
fn each_vector_is_read_by_the_side_that_it_is_for_and_by_no_other() {
    for vector in GOOD.into_iter().flat_map(vectors) {
        let (head, payload) = frame(&vector);
        let name = vector.name();
        let by_veche = read_by_veche(&vector, &head, &payload);
        let by_worker = ToWorker::read(Frame {
            head: &head,
            payload: &payload,
        });
        // Both sides may send `cancel`.
        let is_of_both = vector.head().and_then(|head| head.get("type")) == Some(&"cancel".into());
        if vector.is_of_worker() {
            by_veche.unwrap_or_else(|(_, why)| panic!("{name}: {why}"));
            assert_eq!(by_worker.is_ok(), is_of_both, "{name}");
        } else {
            by_worker.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(by_veche.is_ok(), is_of_both, "{name}");
        }
    }
}

#[test]
fn heads_are_written_as_they_were_read() {
    for vector in GOOD.into_iter().flat_map(vectors) {
        let (head, payload) = frame(&vector);
        let mut wire = Vec::new();
        let kind = vector.head().and_then(|head| head["type"].as_str());
        macro_rules! again {
            ($type:ty) => {{
                let head: $type = serde_json::from_slice(&head).expect("a head");
                encode(&mut wire, FrameLimits::default(), &head, &[&payload])
            }};
        }
        let written = match kind.unwrap_or_default() {
            "hello" => again!(HelloHead<'_>),
            "welcome" => again!(WelcomeHead<'_>),
            "refuse" => again!(RefuseHead<'_>),
            "event" => again!(EventHead<'_>),
            "answer" | "effects" => again!(AnswerHead<'_>),
            "call" => again!(CallHead<'_>),
            "result" => again!(ResultHead<'_>),
            "cancel" => again!(CancelHead),
            other => panic!("{}: {other}", vector.name()),
        };
        written.expect("it is short");
        assert_eq!(wire, vector.wire(), "{}", vector.name());
    }
}

#[test]
fn what_a_worker_says_too_much_is_passed_over() {
    let mut read = Vec::new();
    for vector in vectors("lenient") {
        let (head, payload) = frame(&vector);
        let frame = read_by_veche(&vector, &head, &payload);
        let frame = frame.unwrap_or_else(|(_, why)| panic!("{}: {why}", vector.name()));
        read.push(format!("{frame:?}"));
    }
    let echo = &read[0];
    assert!(
        echo.contains("Send { to: None, kind: Text, data: [120] }"),
        "{echo}"
    );
    // The vectors with `null` and with another field order are read like the first vector.
    assert_eq!(&read[1..3], [echo.clone(), echo.clone()]);
    assert!(read[3].contains("moon_landing"), "{}", read[3]);
}

/// Calls `visit` with the path and the fields of each object in a head. The path consists of field names, so objects with
/// the same path have the same kinds of fields.
fn each_object(
    place: &str,
    value: &mut Value,
    visit: &mut impl FnMut(&str, &mut Map<String, Value>),
) {
    match value {
        Value::Object(fields) => {
            visit(place, fields);
            for (name, value) in fields.iter_mut() {
                // The names in `set` are those of the application's attributes.
                if name != "set" {
                    each_object(&format!("{place}.{name}"), value, visit);
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                each_object(place, value, visit);
            }
        }
        _ => {}
    }
}

#[test]
fn a_field_that_is_null_is_absent() {
    let of_workers = || {
        let all = GOOD.into_iter().flat_map(vectors);
        all.filter(Vector::is_of_worker).map(|vector| {
            let head = vector.head().expect("a head").clone();
            let kind = head["type"].as_str().expect("a type").to_owned();
            (vector, kind, head)
        })
    };
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, kind, mut head) in of_workers() {
        each_object(&kind, &mut head, &mut |place, fields| {
            let known = names.entry(place.to_owned()).or_default();
            known.extend(fields.keys().cloned());
        });
    }
    for (vector, kind, mut head) in of_workers() {
        each_object(&kind, &mut head, &mut |place, fields| {
            for name in &names[place] {
                fields.entry(name).or_insert(Value::Null);
            }
        });
        let with_nulls = serde_json::to_vec(&head).expect("JSON");
        let (without, payload) = frame(&vector);
        let expected = read_by_veche(&vector, &without, &payload).expect("it is valid");
        let read = read_by_veche(&vector, &with_nulls, &payload);
        assert_eq!(read.as_ref(), Ok(&expected), "{}: {head}", vector.name());
    }
}

#[test]
fn a_malformed_frame_ends_what_its_vector_says() {
    for vector in vectors("malformed") {
        let name = vector.name();
        if let Some(error) = vector.text("error") {
            all_ways(&vector.wire(), |how, frames| {
                let found = match frames {
                    Ok(_) => "none",
                    Err(FrameError::NoHead) => "no_head",
                    Err(FrameError::HeadTooLong { .. }) => "head_too_long",
                    Err(FrameError::PayloadTooLong { .. }) => "payload_too_long",
                };
                assert_eq!(found, error, "{name}, {how}");
            });
            continue;
        }
        let (head, payload) = frame(&vector);
        let Err((scope, why)) = read_by_veche(&vector, &head, &payload) else {
            panic!("{name}: it is read");
        };
        let id = vector.head().and_then(|head| head["id"].as_u64());
        let expected = match (vector.text("ends"), id) {
            (Some("worker"), _) => ErrorScope::Worker,
            (Some("frame"), _) => ErrorScope::Frame,
            (Some("event"), Some(id)) => ErrorScope::Event(id),
            (Some("call"), Some(id)) => ErrorScope::Call(id),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(scope, expected, "{name}: {why}");
        assert!(!why.is_empty(), "{name}");
    }
}

#[test]
fn each_frame_event_effect_and_call_has_a_vector() {
    let mut seen = BTreeSet::new();
    let mut note = |what: &str, name: Option<&Value>| {
        if let Some(name) = name.and_then(Value::as_str) {
            seen.insert(format!("{what} {name}"));
        }
    };
    for vector in GOOD.into_iter().flat_map(vectors) {
        let Some(head) = vector.head() else { continue };
        note("frame", head.get("type"));
        note("event", head.get("event"));
        note("call", head.get("call"));
        let effects = head.get("effects").and_then(Value::as_array);
        for effect in effects.into_iter().flatten() {
            note("effect", effect.get("effect"));
        }
    }
    let names = |what: &str, all: Vec<Value>| {
        let names = all
            .into_iter()
            .map(|name| format!("{what} {}", name.as_str().expect("a name")));
        names.collect::<Vec<_>>()
    };
    let value = |name: &str| Value::from(name);
    let mut expected = names(
        "frame",
        FrameKind::ALL
            .iter()
            .map(|kind| serde_json::json!(kind))
            .collect(),
    );
    expected.extend(names(
        "event",
        EventName::ALL
            .iter()
            .map(|name| serde_json::json!(name))
            .collect(),
    ));
    expected.extend(names("effect", EFFECTS.map(value).to_vec()));
    expected.extend(names("call", CALLS.map(value).to_vec()));
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), {
        expected.sort();
        expected
    });
}
