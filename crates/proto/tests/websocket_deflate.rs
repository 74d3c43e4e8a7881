//! Tests of permessage-deflate: a table of negotiations, the limit of the window, and malicious streams.

use veche_proto::websocket::deflate::{
    DeflateParams, DeflatePolicy, negotiate, read_response, write_offer,
};
use veche_proto::websocket::{
    Codecs, Decoder, Encoder, FrameEvent, MessageKind, MessageLimits, ProtocolError, Role,
    encode_message,
};

#[path = "websocket_deflate/inflate.rs"]
mod inflate;

const WINDOWS: DeflatePolicy = DeflatePolicy {
    takeover: true,
    server_window_bits: 15,
    client_window_bits: 15,
};

/// Returns the response to `offers`, with `pd` in place of the extension's name. The response is empty if compression
/// is declined.
fn answer(policy: &DeflatePolicy, offers: &[&str]) -> String {
    let mut out = Vec::new();
    if let Some(agreed) = negotiate(offers.iter().copied(), policy) {
        agreed.write_response(&mut out);
    }
    String::from_utf8(out)
        .unwrap()
        .replace("permessage-deflate", "pd")
}

fn pd(parameters: &str) -> String {
    format!("permessage-deflate{parameters}")
}

#[test]
fn a_server_answers_offers() {
    let takeover = |parameters: &str| answer(&WINDOWS, &[&pd(parameters)]);
    assert_eq!(takeover(""), "pd");
    assert_eq!(takeover("; client_max_window_bits"), "pd");
    assert_eq!(takeover("; client_max_window_bits=15"), "pd");
    assert_eq!(
        takeover("; client_max_window_bits=9"),
        "pd; client_max_window_bits=9"
    );
    assert_eq!(
        takeover("; client_max_window_bits=8"),
        "pd; client_max_window_bits=8"
    );
    assert_eq!(
        takeover("; server_max_window_bits=15"),
        "pd; server_max_window_bits=15"
    );
    assert_eq!(
        takeover("; server_max_window_bits=8"),
        "pd; server_max_window_bits=8"
    );
    assert_eq!(
        takeover("; server_max_window_bits=\"10\""),
        "pd; server_max_window_bits=10"
    );
    assert_eq!(
        takeover("; server_no_context_takeover"),
        "pd; server_no_context_takeover"
    );
    assert_eq!(
        takeover("; client_no_context_takeover"),
        "pd; client_no_context_takeover"
    );
    assert_eq!(answer(&WINDOWS, &["Permessage-Deflate"]), "pd");
    // Each of these offers is invalid, so the server must decline it.
    for wrong in [
        "; server_max_window_bits",
        "; server_max_window_bits=7",
        "; server_max_window_bits=16",
        "; server_max_window_bits=010",
        "; server_max_window_bits=\"\"",
        "; server_max_window_bits=+9",
        "; client_max_window_bits=7",
        "; client_max_window_bits=",
        "; client_max_window_bits=99999999999999999999",
        "; server_no_context_takeover=1",
        "; server_no_context_takeover; server_no_context_takeover",
        "; client_max_window_bits; client_max_window_bits",
        "; server_max_window_bits=9; server_max_window_bits=10",
        "; unknown",
        "; __proto__=1",
        ";",
    ] {
        assert_eq!(takeover(wrong), "", "{wrong}");
        // The server skips an invalid offer and accepts the next one, in the same header or in another.
        let both = format!("{}, permessage-deflate", pd(wrong));
        assert_eq!(answer(&WINDOWS, &[&both]), "pd", "{wrong}");
        assert_eq!(
            answer(&WINDOWS, &[&pd(wrong), "permessage-deflate"]),
            "pd",
            "{wrong}"
        );
    }
    assert_eq!(
        answer(&WINDOWS, &["permessage-bzip2, x-webkit-deflate-frame"]),
        ""
    );
    assert_eq!(answer(&WINDOWS, &[]), "");
}

#[test]
fn the_default_keeps_no_context() {
    let offer = ["permessage-deflate; client_max_window_bits"];
    let expected = "pd; server_no_context_takeover; client_no_context_takeover";
    assert_eq!(answer(&DeflatePolicy::default(), &offer), expected);
    let small = DeflatePolicy {
        server_window_bits: 11,
        client_window_bits: 10,
        ..WINDOWS
    };
    let expected = "pd; server_max_window_bits=11; client_max_window_bits=10";
    assert_eq!(answer(&small, &offer), expected);
    // If the client does not offer `client_max_window_bits`, the server can't require a smaller
    // window from it.
    assert_eq!(
        answer(&small, &["permessage-deflate"]),
        "pd; server_max_window_bits=11"
    );
}

#[test]
fn a_client_knows_the_contexts_that_are_kept() {
    let forgets = DeflatePolicy::default();
    for (parameters, policy, server, client) in [
        ("", &WINDOWS, false, false),
        ("; server_no_context_takeover", &WINDOWS, true, false),
        ("; client_no_context_takeover", &WINDOWS, false, true),
        (
            "; server_no_context_takeover; client_no_context_takeover",
            &WINDOWS,
            true,
            true,
        ),
        // The client's offer excluded context takeover. This binds the client, though the response does not repeat it.
        ("; server_no_context_takeover", &forgets, true, true),
    ] {
        let response = pd(parameters);
        let agreed = read_response([response.as_str()].into_iter(), Some(policy));
        let agreed = agreed.expect("valid").expect("agreed");
        let contexts = (
            agreed.server_no_context_takeover(),
            agreed.client_no_context_takeover(),
        );
        assert_eq!(contexts, (server, client), "{parameters}");
    }
}

#[test]
fn a_client_reads_responses() {
    let small = DeflatePolicy {
        server_window_bits: 12,
        ..WINDOWS
    };
    let mut offer = Vec::new();
    write_offer(&mut offer, &small);
    assert_eq!(
        offer,
        pd("; server_max_window_bits=12; client_max_window_bits").as_bytes()
    );
    let read = |response: &str| read_response([response].into_iter(), Some(&small));
    assert!(read("").unwrap().is_none());
    let agreed = read(&pd("; server_max_window_bits=12; client_max_window_bits=9"))
        .unwrap()
        .unwrap();
    assert_eq!(
        (agreed.server_window_bits(), agreed.client_window_bits()),
        (12, 9)
    );
    for wrong in [
        "; server_max_window_bits=13",
        "",
        "; server_max_window_bits=12; client_max_window_bits",
        "; server_max_window_bits=12; unknown",
        "; server_max_window_bits=12, permessage-deflate",
    ] {
        assert!(read(&pd(wrong)).is_err(), "{wrong}");
    }
    assert!(read("permessage-bzip2").is_err());
    assert!(
        read_response(
            ["permessage-deflate"].into_iter(),
            Some(&DeflatePolicy::default())
        )
        .is_err()
    );
}

#[test]
fn hostile_headers_take_linear_time() {
    let quotes = format!("a; b=\"{}", "\\c".repeat(500_000));
    let offers = "permessage-deflate; unknown, ".repeat(30_000);
    let parameters = format!("permessage-deflate{}", "; a=b".repeat(200_000));
    for header in [
        quotes,
        offers,
        parameters,
        ",".repeat(1 << 20),
        "\"\\".repeat(1 << 19),
    ] {
        assert_eq!(answer(&WINDOWS, &[&header]), "");
    }
}

fn agreed(bits: u8, takeover: bool) -> DeflateParams {
    let policy = DeflatePolicy {
        takeover,
        server_window_bits: bits,
        client_window_bits: bits,
    };
    negotiate(
        ["permessage-deflate; client_max_window_bits"].into_iter(),
        &policy,
    )
    .unwrap()
}

/// Returns data with repetitions at every distance at which a compressor might exceed its window.
fn tempting(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut data: Vec<u8> = (0..random.usize(20..200)).map(|_| random.u8(..)).collect();
    while data.len() < 20_000 {
        let reach = 1 << random.u32(4..15);
        let back = random.usize(1..=data.len().min(reach));
        let start = data.len() - back;
        let length = random.usize(3..=300).min(back);
        data.extend_from_within(start..start + length);
        if random.u8(..4) == 0 {
            data.push(random.u8(..));
        }
    }
    data
}

/// No back reference reaches farther than the window. The library supports windows of at least 9 bits. For a negotiated
/// window of 8 bits the library uses 9 bits, but distances must stay within 8 bits.
#[test]
fn distances_stay_within_the_window() {
    let mut random = fastrand::Rng::with_seed(7692);
    for takeover in [false, true] {
        for bits in 8..=15 {
            let agreed = agreed(bits, takeover);
            let mut encoder = Encoder::new(Role::Server, Some(agreed));
            let mut decoder = Decoder::new(Role::Client, Some(agreed));
            let (mut sending, mut receiving) = (Codecs::new(), Codecs::new());
            let limits = MessageLimits {
                message_bytes_max: 1 << 20,
                fragments_max: 1,
                inflate_ratio_max: 0,
            };
            let mut history = Vec::new();
            let mut reach = 0;
            for _ in 0..10 {
                let data = tempting(&mut random);
                let mut wire = Vec::new();
                assert!(encoder.encode(&mut wire, MessageKind::Binary, &data, &mut sending, None));
                let payload = match wire[1] {
                    126 => &wire[4..],
                    127 => &wire[10..],
                    _ => &wire[2..],
                };
                if !takeover {
                    history.clear();
                }
                let farthest = inflate::message(payload, &mut history);
                assert!(history.ends_with(&data));
                assert!(
                    farthest <= 1 << bits,
                    "{farthest} bytes back with {bits} bits"
                );
                reach = farthest.max(reach);
                match decoder
                    .decode(&mut wire, &mut receiving, &limits)
                    .unwrap()
                    .1
                {
                    Some(FrameEvent::Message { data: received, .. }) => assert!(received == data),
                    other => panic!("{other:?}"),
                }
            }
            // Ensures that the test can fail: the distances come as near to the window's size as the library's
            // lookahead permits.
            assert!(
                bits < 10 || reach > 1 << (bits - 2),
                "{reach} with {bits} bits"
            );
        }
    }
}

/// Returns an unmasked binary frame with the bit that marks it as compressed.
fn compressed_frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_message(&mut frame, MessageKind::Binary, payload, None);
    frame[0] |= 0x40;
    frame
}

#[test]
fn bombs_stop_at_the_limit() {
    let limits = MessageLimits {
        message_bytes_max: 1 << 20,
        fragments_max: 100_000,
        inflate_ratio_max: 0,
    };
    // 64 MiB of zeros, which compress to 64 KiB.
    let mut bomb = Vec::new();
    let mut codecs = Codecs::new();
    let zeros = vec![0; 64 << 20];
    Encoder::new(Role::Server, Some(agreed(15, false))).encode(
        &mut bomb,
        MessageKind::Binary,
        &zeros,
        &mut codecs,
        None,
    );
    assert!(bomb.len() < 100_000);
    for takeover in [false, true] {
        let mut codecs = Codecs::new();
        let mut decoder = Decoder::new(Role::Client, Some(agreed(15, takeover)));
        let mut wire = bomb.clone();
        let stopped = decoder.decode(&mut wire, &mut codecs, &limits);
        assert_eq!(stopped, Err(ProtocolError::MessageTooBig));
        // A message in thousands of fragments is refused at the same length as a message in one frame.
        let mut wire = Vec::new();
        let header = if bomb[1] == 126 { 4 } else { 10 };
        let parts = bomb[header..].chunks(10);
        let last = parts.len() - 1;
        for (index, part) in parts.enumerate() {
            let mut frame = compressed_frame(part);
            frame[0] = match index {
                0 => 0x42,
                _ if index == last => 0x80,
                _ => 0,
            };
            wire.extend_from_slice(&frame);
        }
        let mut decoder = Decoder::new(Role::Client, Some(agreed(15, takeover)));
        let stopped = decoder.decode(&mut wire, &mut codecs, &limits);
        assert_eq!(stopped, Err(ProtocolError::MessageTooBig));
        assert_eq!(decoder.heap_bytes(), 0);
    }
}

/// A message of zeros compresses to a thousandth of its size. It is refused if it inflates to more than 64 KiB, with
/// and without context takeover.
#[test]
fn a_message_that_inflates_too_far_is_refused() {
    let zeros = |length: usize, takeover| {
        let (mut frame, mut codecs) = (Vec::new(), Codecs::new());
        Encoder::new(Role::Server, Some(agreed(15, takeover))).encode(
            &mut frame,
            MessageKind::Binary,
            &vec![0; length],
            &mut codecs,
            None,
        );
        frame
    };
    for takeover in [false, true] {
        for (length, ratio, expected) in [
            (1 << 20, 200, None),
            ((1 << 20) + 1, 200, Some(ProtocolError::InflatedTooFar)),
            (2 << 20, 0, None),
            (2 << 20, 2_000, None),
            ((2 << 20) + 1, 2_000, Some(ProtocolError::MessageTooBig)),
        ] {
            let limits = MessageLimits {
                message_bytes_max: 2 << 20,
                fragments_max: 1,
                inflate_ratio_max: ratio,
            };
            let mut decoder = Decoder::new(Role::Client, Some(agreed(15, takeover)));
            let mut wire = zeros(length, takeover);
            let mut codecs = Codecs::new();
            let found = decoder.decode(&mut wire, &mut codecs, &limits).err();
            assert_eq!(found, expected, "{length} {ratio}");
            assert_eq!(
                expected.map(ProtocolError::close_code),
                expected.map(|_| 1009)
            );
        }
    }
}

/// Repetitive JSON compresses as strongly as a decompression bomb, but must be accepted.
#[test]
fn repetitive_json_is_taken() {
    let limits = MessageLimits {
        message_bytes_max: 1 << 20,
        fragments_max: 1,
        inflate_ratio_max: 100,
    };
    let row = r#"{"id":0,"name":"","tags":[]},"#;
    for length in [64 << 10, (64 << 10) + 1, 100 << 10, 1 << 20] {
        let mut text = format!("[{}0]", row.repeat((length - 3) / row.len()));
        text.push_str(&" ".repeat(length - text.len()));
        let mut wire = Vec::new();
        let mut codecs = Codecs::new();
        let mut encoder = Encoder::new(Role::Server, Some(agreed(15, false)));
        encoder.encode(
            &mut wire,
            MessageKind::Text,
            text.as_bytes(),
            &mut codecs,
            None,
        );
        assert!(wire.len() * 100 < length, "{length} in {}", wire.len());
        codecs.take_work();
        let mut decoder = Decoder::new(Role::Client, Some(agreed(15, false)));
        let decoded = decoder.decode(&mut wire, &mut codecs, &limits);
        match decoded.expect("it is taken").1 {
            Some(FrameEvent::Message { data, .. }) => assert_eq!(data, text.as_bytes()),
            other => panic!("{other:?}"),
        }
        assert!(codecs.take_work() >= length as u64, "it is charged");
    }
}

/// A message whose data is corrupt beyond the size limit is reported as too big. A buffer that an earlier message has
/// enlarged must not change that.
#[test]
fn corrupt_and_too_big_is_too_big() {
    let mut payload = vec![0, 200, 0, 55, 255];
    payload.extend_from_slice(&[b'x'; 200]);
    payload.push(7); // A block of the reserved type.
    let decode_error = |codecs: &mut Codecs, bytes_max| {
        let limits = MessageLimits {
            message_bytes_max: bytes_max,
            fragments_max: 1,
            inflate_ratio_max: 0,
        };
        let mut decoder = Decoder::new(Role::Client, Some(agreed(15, false)));
        let mut wire = compressed_frame(&payload);
        decoder.decode(&mut wire, codecs, &limits).err()
    };
    let mut used = Codecs::new();
    assert_eq!(
        decode_error(&mut used, 10_000),
        Some(ProtocolError::CorruptDeflate)
    );
    assert_eq!(
        decode_error(&mut used, 199),
        Some(ProtocolError::MessageTooBig)
    );
    assert_eq!(
        decode_error(&mut Codecs::new(), 199),
        Some(ProtocolError::MessageTooBig)
    );
    for codecs in [&mut used, &mut Codecs::new()] {
        assert_eq!(
            decode_error(codecs, 200),
            Some(ProtocolError::CorruptDeflate)
        );
    }
}

/// Each final block takes only two bytes but needs a new decompressor, so the number of final blocks per message is
/// limited.
#[test]
fn final_blocks_are_counted() {
    let limits = MessageLimits {
        message_bytes_max: 1 << 20,
        fragments_max: 1,
        inflate_ratio_max: 0,
    };
    for (blocks, refused) in [
        (1, false),
        (8, false),
        (9, true),
        (250, true),
        (400_000, true),
    ] {
        let mut frame = compressed_frame(&[3, 0].repeat(blocks));
        let mut codecs = Codecs::new();
        let mut decoder = Decoder::new(Role::Client, Some(agreed(15, false)));
        let result = decoder.decode(&mut frame, &mut codecs, &limits);
        let expected = refused.then_some(ProtocolError::TooManyFinalBlocks);
        assert_eq!(result.err(), expected, "{blocks}");
        assert_eq!(expected.map_or(1007, ProtocolError::close_code), 1007);
    }
}

#[test]
fn empty_messages_in_a_row_keep_the_context() {
    let agreed = agreed(15, true);
    let mut encoder = Encoder::new(Role::Server, Some(agreed));
    let mut decoder = Decoder::new(Role::Client, Some(agreed));
    let (mut sending, mut receiving) = (Codecs::new(), Codecs::new());
    let limits = MessageLimits {
        message_bytes_max: 100,
        fragments_max: 1,
        inflate_ratio_max: 0,
    };
    for text in ["", "", "Hello", "", "", "", "Hello", "Hello, Hello"] {
        let mut wire = Vec::new();
        encoder.encode(
            &mut wire,
            MessageKind::Text,
            text.as_bytes(),
            &mut sending,
            None,
        );
        match decoder
            .decode(&mut wire, &mut receiving, &limits)
            .unwrap()
            .1
        {
            Some(FrameEvent::Message { data, .. }) => assert_eq!(data, text.as_bytes()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn connections_share_what_they_can() {
    let (eight, nine, full) = (agreed(8, false), agreed(9, false), agreed(15, false));
    assert_eq!(
        eight.sharing_key(Role::Server),
        nine.sharing_key(Role::Server)
    );
    assert_ne!(
        nine.sharing_key(Role::Server),
        full.sharing_key(Role::Server)
    );
    assert_eq!(agreed(15, true).sharing_key(Role::Server), None);
}
