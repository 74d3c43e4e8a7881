//! Tests the examples of RFC 6455 section 5.7 and of RFC 7692 section 7.2.3, compared byte by byte.

use veche_proto::websocket::{
    Codecs, Decoder, Encoder, FrameEvent, MessageKind, MessageLimits, Opcode, Role, deflate,
    encode_control, encode_message,
};

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 1 << 20,
    fragments_max: 16,
    inflate_ratio_max: 0,
};

fn message(role: Role, offer: Option<&str>, wire: &[u8]) -> (MessageKind, Vec<u8>) {
    let policy = deflate::DeflatePolicy {
        takeover: true,
        ..Default::default()
    };
    let agreed = offer.map(|offer| deflate::negotiate([offer].into_iter(), &policy).unwrap());
    let mut decoder = Decoder::new(role, agreed);
    let mut codecs = Codecs::new();
    let mut wire = wire.to_vec();
    match decoder.decode(&mut wire, &mut codecs, &LIMITS).unwrap() {
        (_, Some(FrameEvent::Message { kind, data })) => (kind, data.to_vec()),
        other => panic!("{other:?}"),
    }
}

fn hello() -> (MessageKind, Vec<u8>) {
    (MessageKind::Text, b"Hello".to_vec())
}

#[test]
fn single_frames() {
    let plain = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    assert_eq!(message(Role::Client, None, &plain), hello());
    let mut out = Vec::new();
    encode_message(&mut out, MessageKind::Text, b"Hello", None);
    assert_eq!(out, plain);

    let masked = [
        0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
    ];
    assert_eq!(message(Role::Server, None, &masked), hello());
    out.clear();
    encode_message(
        &mut out,
        MessageKind::Text,
        b"Hello",
        Some([0x37, 0xfa, 0x21, 0x3d]),
    );
    assert_eq!(out, masked);
}

#[test]
fn fragments() {
    let wire = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
    assert_eq!(message(Role::Client, None, &wire), hello());
}

#[test]
fn ping_and_pong() {
    let mut out = Vec::new();
    encode_control(&mut out, Opcode::Ping, b"Hello", None);
    assert_eq!(out, [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    let mut pong = [
        0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
    ];
    let mut decoder = Decoder::new(Role::Server, None);
    let mut codecs = Codecs::new();
    let decoded = decoder.decode(&mut pong, &mut codecs, &LIMITS);
    assert_eq!(decoded, Ok((11, Some(FrameEvent::Pong(b"Hello")))));
}

#[test]
fn lengths_of_16_and_64_bits() {
    for (length, header) in [
        (256, &[0x82, 0x7e, 0x01, 0x00][..]),
        (65536, &[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0][..]),
    ] {
        let data = vec![7; length];
        let mut out = Vec::new();
        encode_message(&mut out, MessageKind::Binary, &data, None);
        assert_eq!(&out[..header.len()], header);
        assert_eq!(
            message(Role::Client, None, &out),
            (MessageKind::Binary, data)
        );
    }
}

#[test]
fn compressed_in_one_block_and_fragmented() {
    let offer = Some("permessage-deflate");
    let one = [0xc1, 0x07, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    assert_eq!(message(Role::Client, offer, &one), hello());
    let two = [
        0x41, 0x03, 0xf2, 0x48, 0xcd, 0x80, 0x04, 0xc9, 0xc9, 0x07, 0x00,
    ];
    assert_eq!(message(Role::Client, offer, &two), hello());
}

#[test]
fn compressed_sharing_a_window() {
    let agreed = deflate::negotiate(
        ["permessage-deflate"].into_iter(),
        &deflate::DeflatePolicy {
            takeover: true,
            ..Default::default()
        },
    )
    .unwrap();
    let mut decoder = Decoder::new(Role::Client, Some(agreed));
    let mut codecs = Codecs::new();
    for wire in [
        &[0xc1, 0x07, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
        &[0xc1, 0x05, 0xf2, 0x00, 0x11, 0x00, 0x00],
    ] {
        let mut input = wire.to_vec();
        let event = decoder.decode(&mut input, &mut codecs, &LIMITS).unwrap().1;
        assert_eq!(
            event,
            Some(FrameEvent::Message {
                kind: MessageKind::Text,
                data: &mut b"Hello".to_vec()
            })
        );
    }
    // The server's encoder makes the second message as short as it is in the example.
    let mut encoder = Encoder::new(Role::Server, Some(agreed));
    let mut out = Vec::new();
    assert!(encoder.encode(&mut out, MessageKind::Text, b"Hello", &mut codecs, None));
    assert_eq!(out, [0xc1, 0x07, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
    out.clear();
    assert!(encoder.encode(&mut out, MessageKind::Text, b"Hello", &mut codecs, None));
    assert_eq!(out, [0xc1, 0x05, 0xf2, 0x00, 0x11, 0x00, 0x00]);
}

#[test]
fn compressed_without_compression_final_block_and_two_blocks() {
    let offer = Some("permessage-deflate");
    let stored = [
        0xc1, 0x0b, 0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00,
    ];
    assert_eq!(message(Role::Client, offer, &stored), hello());
    let last = [0xc1, 0x08, 0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
    assert_eq!(message(Role::Client, offer, &last), hello());
    let two = [
        0xc1, 0x0d, 0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00,
    ];
    assert_eq!(message(Role::Client, offer, &two), hello());
}

#[test]
fn compressed_empty_message() {
    let offer = Some("permessage-deflate");
    let empty = [0xc1, 0x01, 0x00];
    assert_eq!(
        message(Role::Client, offer, &empty),
        (MessageKind::Text, Vec::new())
    );
}
