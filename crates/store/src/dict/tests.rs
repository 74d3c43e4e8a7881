//! Tests of dictionaries: comparison with a plain map, use by several threads, and limits.

use std::collections::BTreeMap;
use std::thread;

use super::*;
use crate::value::ValueKind;

fn dict(bytes_max: usize) -> Dict {
    Dict::new(Options { bytes_max })
}

fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().into())
}

fn keys_of(dict: &Dict, prefix: &[u8], most: usize, now_ms: u64) -> Vec<Arc<[u8]>> {
    dict.keys(prefix, most, now_ms, || true)
        .expect("nothing stops it")
}

#[test]
fn set_add_and_delete() {
    let dict = dict(1 << 20);
    assert_eq!(dict.get(b"k", 0), None);
    dict.set(b"k", bytes("v"), None, 0).expect("room");
    assert_eq!(dict.get(b"k", u64::MAX - 1), Some(bytes("v")));
    assert_eq!(dict.add(b"k", bytes("w"), None, 0), Ok(false));
    assert!(dict.delete(b"k", 0));
    assert!(!dict.delete(b"k", 0));
    assert_eq!(dict.add(b"k", bytes("w"), None, 0), Ok(true));
    assert_eq!(dict.count(0), 1);
    assert!(dict.delete(b"k", 0));
    assert_eq!((dict.count(0), dict.used_bytes()), (0, 0));
    let long = [0; KEY_BYTES_MAX + 1];
    assert_eq!(dict.set(&long, bytes(""), None, 0), Err(Error::Key));
    assert!(!dict.delete(&long, 0) && dict.get(&long, 0).is_none());
}

#[test]
fn entries_expire() {
    let dict = dict(1 << 20);
    dict.set(b"k", bytes("v"), Some(10), 100).expect("room");
    assert_eq!(dict.get(b"k", 109), Some(bytes("v")));
    assert_eq!((dict.get(b"k", 110), dict.count(110)), (None, 0));
    assert!(keys_of(&dict, b"", 10, 110).is_empty() && !dict.delete(b"k", 110));
    // A later value without a TTL is permanent; a later value with another TTL has only the new TTL.
    dict.set(b"k", bytes("w"), Some(10), 110).expect("room");
    dict.set(b"k", bytes("x"), None, 111).expect("room");
    assert_eq!(dict.get(b"k", 10_000), Some(bytes("x")));
    dict.set(b"k", bytes("y"), Some(5), 10_000).expect("room");
    dict.set(b"k", bytes("z"), Some(50), 10_000).expect("room");
    assert_eq!(dict.get(b"k", 10_049), Some(bytes("z")));
    assert_eq!(dict.get(b"k", 10_050), None);
    assert!(!dict.delete(b"k", 10_050) && dict.used_bytes() == 0);
}

#[test]
fn numbers_are_increased() {
    let dict = dict(1 << 20);
    assert_eq!(dict.incr(b"n", 2.0, 40.0, 0), Ok(42.0));
    assert_eq!(dict.incr(b"n", -0.5, 0.0, 0), Ok(41.5));
    dict.set(b"t", Value::Number(1.0), Some(10), 0)
        .expect("room");
    assert_eq!(dict.incr(b"t", 1.0, 0.0, 9), Ok(2.0));
    assert_eq!(dict.incr(b"t", 1.0, 0.0, 10), Ok(1.0), "it had expired");
    dict.set(b"s", bytes("1"), None, 0).expect("room");
    let refused = dict.incr(b"s", 1.0, 0.0, 0);
    assert_eq!(refused, Err(Error::NotANumber(ValueKind::Bytes)));
    assert_eq!(dict.incr(b"n", f64::MAX, 0.0, 0), Ok(f64::MAX));
    assert_eq!(dict.incr(b"n", f64::MAX, 0.0, 0), Err(Error::NotFinite));
    assert_eq!(dict.get(b"n", 0), Some(Value::Number(f64::MAX)));
}

#[test]
fn a_changed_entry_is_not_swapped() {
    let dict = dict(1 << 20);
    let (none, absent) = dict.read(b"k", 0);
    assert_eq!(none, None);
    assert_eq!(dict.swap(b"k", absent, Some(bytes("a")), None, 0), Ok(true));
    assert_eq!(
        dict.swap(b"k", absent, Some(bytes("b")), None, 0),
        Ok(false)
    );
    let (_, a) = dict.read(b"k", 0);
    dict.set(b"k", bytes("a"), Some(10), 0).expect("room");
    assert_eq!(dict.swap(b"k", a, None, None, 0), Ok(false), "set again");
    let (_, again) = dict.read(b"k", 0);
    assert_eq!(dict.swap(b"k", again, Some(bytes("c")), None, 5), Ok(true));
    assert_eq!(dict.get(b"k", 10), None, "it expires as before");
    let (_, gone) = dict.read(b"k", 10);
    assert_eq!(dict.swap(b"k", gone, None, None, 10), Ok(true));
    assert_eq!(
        dict.swap(b"k", gone, Some(bytes("d")), Some(5), 10),
        Ok(true)
    );
    assert_eq!(dict.get(b"k", 15), None);
}

#[test]
fn it_is_never_over_its_limit_and_throws_nothing_out() {
    let dict = dict(10_000);
    let mut kept = 0;
    let refused = loop {
        let key = format!("key {kept}");
        match dict.set(key.as_bytes(), bytes("value"), None, 0) {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        assert!(dict.used_bytes() <= 10_000);
    };
    assert!(matches!(
        refused,
        Error::Full {
            bytes_max: 10_000,
            ..
        }
    ));
    assert!((50..100).contains(&kept));
    assert_eq!(dict.count(0), kept);
    // A full dictionary still accepts a value that is not larger than the one that it replaces.
    dict.set(b"key 0", bytes("other"), None, 0).expect("room");
    let much = bytes(&"x".repeat(200));
    assert!(dict.set(b"key 0", much, None, 0).is_err());
    assert_eq!(dict.get(b"key 0", 0), Some(bytes("other")));
    assert!(dict.delete(b"key 1", 0));
    dict.set(b"key 2", bytes("value"), None, 0).expect("room");
    let huge = bytes(&"x".repeat(20_000));
    assert!(dict.add(b"new", huge, None, 0).is_err());
}

#[test]
fn expired_entries_make_room() {
    let dict = dict(10_000);
    let mut number = 0;
    while dict.set(format!("{number}").as_bytes(), bytes("v"), Some(10), 0) == Ok(()) {
        number += 1;
    }
    let large = bytes(&"x".repeat(9_000));
    assert!(dict.set(b"new", large.clone(), None, 9).is_err());
    dict.set(b"new", large, None, 10).expect("room");
    assert_eq!(dict.count(10), 1);
    assert!(dict.used_bytes() <= 10_000, "{}", dict.used_bytes());
}

#[test]
fn as_many_expired_entries_go_as_room_is_needed() {
    let dict = dict(1 << 20);
    let mut number = 0;
    while dict.set(format!("{number}").as_bytes(), bytes("v"), Some(10), 0) == Ok(()) {
        number += 1;
    }
    let before = dict.used_bytes();
    dict.set(b"new", bytes("v"), None, 10).expect("room");
    let gone = (before - dict.used_bytes()) / 160;
    assert!(gone <= EXPIRED_PER_CHANGE + EXPIRED_PER_LOCK, "{gone}");
    let large = bytes(&"x".repeat(100_000));
    dict.set(b"large", large, None, 10).expect("room");
    // Removal of expired entries stops when the new entry fits, so little memory is free afterwards.
    let left = (1 << 20) - dict.used_bytes();
    assert!(
        left <= (EXPIRED_PER_CHANGE + EXPIRED_PER_LOCK) * 170,
        "{left}"
    );
    assert_eq!(dict.count(10), 2);
    // A change is refused only after all expired entries were removed.
    let huge = bytes(&"x".repeat(950_000));
    assert!(dict.set(b"huge", huge, None, 10).is_err());
    assert!(dict.used_bytes() < 101_000, "{}", dict.used_bytes());
}

#[test]
fn one_change_removes_a_bounded_number_of_expired_entries() {
    const BYTES_MAX: usize = 16 << 20;
    let dict = dict(BYTES_MAX);
    let mut number = 0;
    while dict.set(format!("{number}").as_bytes(), bytes("v"), Some(10), 0) == Ok(()) {
        number += 1;
    }
    assert!(number > 3 * EXPIRED_PER_CALL, "{number}");
    let large = bytes(&"x".repeat(BYTES_MAX - 1000));
    let mut calls = 0;
    loop {
        let before = dict.used_bytes();
        let result = dict.set(b"large", large.clone(), None, 10);
        calls += 1;
        if result == Ok(()) {
            break;
        }
        assert!(matches!(result, Err(Error::Full { .. })), "{result:?}");
        let gone = before - dict.used_bytes();
        assert!(gone > 0, "a repetition has more room");
        let most = (EXPIRED_PER_CHANGE + EXPIRED_PER_CALL) * 170;
        assert!(gone <= most, "{gone} bytes");
    }
    assert!(calls >= number / EXPIRED_PER_CALL, "{calls}");
    assert_eq!(dict.count(10), 1);
}

#[test]
fn keys_come_in_order_whatever_shard_they_are_in() {
    let dict = dict(1 << 20);
    for number in 0..500 {
        let key = format!("user:{number:03}");
        dict.set(key.as_bytes(), bytes(""), None, 0).expect("room");
    }
    dict.set(b"user", bytes(""), None, 0).expect("room");
    dict.set(b"\xff\xff", bytes(""), None, 0).expect("room");
    let keys = keys_of(&dict, b"user:", 100, 0);
    let expected: Vec<Arc<[u8]>> = (0..100)
        .map(|number| format!("user:{number:03}").into_bytes().into())
        .collect();
    assert_eq!(keys, expected);
    assert_eq!(keys_of(&dict, b"user:", 1000, 0).len(), 500);
    assert_eq!(keys_of(&dict, b"user:49", 1000, 0).len(), 10);
    assert_eq!(keys_of(&dict, b"", 1000, 0).len(), 502);
    assert_eq!(&*keys_of(&dict, b"\xff", 1, 0)[0], b"\xff\xff");
    assert_eq!(dict.keys(b"", 1000, 0, || false), None);
    assert!(keys_of(&dict, b"none", 10, 0).is_empty() && keys_of(&dict, b"", 0, 0).is_empty());
}

/// Random operations, each compared with a map without shards, limits or concurrency.
#[test]
fn it_agrees_with_a_plain_map() {
    let mut random = fastrand::Rng::with_seed(7);
    let dict = dict(1 << 30);
    let mut model: BTreeMap<String, (Value, u64)> = BTreeMap::new();
    let mut now_ms = 0;
    for step in 0..100_000 {
        now_ms += random.u64(0..3);
        let key = format!("k{}", random.u8(0..40));
        let ttl_ms = random.bool().then(|| random.u64(1..50));
        let expires_ms = ttl_ms.map_or(u64::MAX, |ttl_ms| now_ms + ttl_ms);
        model.retain(|_, (_, expires_ms)| now_ms < *expires_ms);
        let before = model.get(&key).cloned();
        let value = Value::Number(f64::from(step));
        match random.u8(0..7) {
            0 => {
                let value = bytes(&"x".repeat(random.usize(0..20)));
                dict.set(key.as_bytes(), value.clone(), ttl_ms, now_ms)
                    .expect("room");
                model.insert(key, (value, expires_ms));
            }
            1 => {
                let added = dict.add(key.as_bytes(), value.clone(), ttl_ms, now_ms);
                assert_eq!(added, Ok(before.is_none()));
                model.entry(key).or_insert((value, expires_ms));
            }
            2 => {
                assert_eq!(dict.delete(key.as_bytes(), now_ms), before.is_some());
                model.remove(&key);
            }
            3 => {
                let result = dict.incr(key.as_bytes(), 1.0, 10.0, now_ms);
                match before {
                    None => {
                        assert_eq!(result, Ok(11.0));
                        model.insert(key, (Value::Number(11.0), u64::MAX));
                    }
                    Some((Value::Number(number), expires_ms)) => {
                        assert_eq!(result, Ok(number + 1.0));
                        model.insert(key, (Value::Number(number + 1.0), expires_ms));
                    }
                    Some(_) => assert!(result.is_err()),
                }
            }
            4 => {
                let (found, version) = dict.read(key.as_bytes(), now_ms);
                assert_eq!(found, before.map(|(value, _)| value));
                let swapped = dict.swap(key.as_bytes(), version, None, None, now_ms);
                assert_eq!(swapped, Ok(true));
                model.remove(&key);
            }
            5 => {
                let keys = keys_of(&dict, b"k1", 5, now_ms);
                let expected = model.keys().filter(|key| key.starts_with("k1"));
                assert!(
                    keys.iter()
                        .map(|key| &**key)
                        .eq(expected.take(5).map(|key| key.as_bytes()))
                );
            }
            _ => {
                assert_eq!(dict.count(now_ms), model.len());
                let found = dict.get(key.as_bytes(), now_ms);
                assert_eq!(found, before.map(|(value, _)| value));
            }
        }
    }
    for key in keys_of(&dict, b"", 1000, now_ms) {
        dict.delete(&key, now_ms);
    }
    // Each change, even of a missing key, removes some expired entries of its shard, so these
    // changes together remove all.
    for number in 0..1000 {
        dict.delete(format!("none {number}").as_bytes(), now_ms);
    }
    assert_eq!(dict.used_bytes(), 0, "each byte was given back");
}

#[test]
fn threads_lose_nothing() {
    let dict = dict(1 << 20);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for step in 0..5_000u32 {
                    dict.incr(b"sum", 1.0, 0.0, 0).expect("a number");
                    let added = dict.add(format!("once {step}").as_bytes(), bytes("x"), None, 0);
                    if added.expect("room") {
                        dict.incr(b"added", 1.0, 0.0, 0).expect("a number");
                    }
                    loop {
                        let (value, version) = dict.read(b"swapped", 0);
                        let Some(Value::Number(number)) = value.or(Some(Value::Number(0.0))) else {
                            panic!("a number")
                        };
                        let next = Some(Value::Number(number + 1.0));
                        if dict.swap(b"swapped", version, next, None, 0).expect("room") {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(dict.get(b"sum", 0), Some(Value::Number(20_000.0)));
    assert_eq!(dict.get(b"swapped", 0), Some(Value::Number(20_000.0)));
    assert_eq!(dict.get(b"added", 0), Some(Value::Number(5_000.0)));
    assert_eq!(dict.count(0), 5_003);
}
