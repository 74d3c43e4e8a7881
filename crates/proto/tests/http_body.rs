//! Tests of request bodies: every row of `vectors/http_bodies.json` is decoded whole, byte by byte and split at
//! random; and chunks are encoded and decoded again. The notation of the table is that of `http_head.rs`.

use proptest::prelude::*;
use serde_json::Value;
use veche_proto::http::{BodyDecoder, Framing, HeadLimits, HttpError, finish_chunks, write_chunk};

const LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 0,
    headers_max: 0,
    target_bytes_max: 0,
    body_bytes_max: 1 << 20,
};

#[test]
fn every_row_whole_and_split() {
    let rows: Vec<Value> =
        serde_json::from_str(include_str!("../vectors/http_bodies.json")).unwrap();
    assert!(rows.len() > 60);
    let mut rng = fastrand::Rng::with_seed(7);
    for row in &rows {
        let wire = bytes(&row["wire"]);
        let framing = match &row["framing"] {
            Value::Number(length) => Framing::Sized(length.as_u64().unwrap()),
            _ => Framing::Chunked,
        };
        check(row, "whole", decode(framing, &wire, &[]));
        check(
            row,
            "byte by byte",
            decode(framing, &wire, &(0..=wire.len()).collect::<Vec<_>>()),
        );
        for _ in 0..8 {
            let mut splits: Vec<usize> = (0..4).map(|_| rng.usize(0..=wire.len())).collect();
            splits.sort_unstable();
            check(
                row,
                &format!("split at {splits:?}"),
                decode(framing, &wire, &splits),
            );
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut wire = Vec::new();
        chunks.iter().for_each(|chunk| write_chunk(&mut wire, chunk));
        finish_chunks(&mut wire);
        let mut splits: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
        splits.sort_unstable();
        let decoded = decode(Framing::Chunked, &wire, &splits).unwrap();
        prop_assert_eq!(decoded, Decoded { data: chunks.concat(), end: Some(wire.len()) });
    }

    /// Bodies that resemble chunks, most of them invalid, give the same data, end and error whether they arrive whole
    /// or byte by byte.
    #[test]
    fn splits_never_change_the_data(wire in "([0-9a-f]{0,2}(;[a-z]{0,3})?\r?\n?[a-z\r\n]{0,6}){0,4}(0\r\n)?(\r\n)?") {
        let whole = decode(Framing::Chunked, wire.as_bytes(), &[]);
        let every_byte: Vec<usize> = (0..=wire.len()).collect();
        prop_assert_eq!(decode(Framing::Chunked, wire.as_bytes(), &every_byte), whole);
    }
}

#[derive(Debug, PartialEq)]
struct Decoded {
    data: Vec<u8>,
    /// The offset at which the body ended; `None` if it is incomplete.
    end: Option<usize>,
}

fn decode(framing: Framing, wire: &[u8], splits: &[usize]) -> Result<Decoded, HttpError> {
    let mut decoder = BodyDecoder::new(framing, &LIMITS);
    let (mut data, mut at) = (Vec::new(), 0);
    for end in splits.iter().copied().chain([wire.len()]) {
        while !decoder.is_end() {
            let input = &wire[at..end];
            let piece = decoder.decode(input)?;
            assert_eq!(piece.is_end, decoder.is_end());
            assert!(piece.consumed == input.len() || piece.is_end || !piece.data.is_empty());
            assert!(piece.data.end <= piece.consumed);
            data.extend_from_slice(&input[piece.data.clone()]);
            at += piece.consumed;
            if piece.consumed == input.len() {
                break;
            }
        }
    }
    Ok(Decoded {
        data,
        end: decoder.is_end().then_some(at),
    })
}

fn check(row: &Value, how: &str, result: Result<Decoded, HttpError>) {
    let what = format!("{}, {how}", row["name"]);
    if let Some(status) = row["status"].as_u64() {
        match result {
            Ok(decoded) => panic!("{what}: accepted as {decoded:?}"),
            Err(error) => assert_eq!(u64::from(error.status.0), status, "{what}: {error}"),
        }
        return;
    }
    let decoded = result.unwrap_or_else(|error| panic!("{what}: {error}"));
    if row["incomplete"].as_bool() == Some(true) {
        assert_eq!(decoded.end, None, "{what}");
        return;
    }
    assert_eq!(decoded.data, bytes(&row["data"]), "{what}");
    let rest = row["rest"].as_u64().unwrap() as usize;
    assert_eq!(
        decoded.end,
        Some(bytes(&row["wire"]).len() - rest),
        "{what}"
    );
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
