//! Tests that encoded messages are decoded unchanged, with any fragmentation, control frames in between, and any
//! splits. The memory of a decoder is limited by its input and its limits.

use proptest::prelude::*;
use veche_proto::websocket::{
    Codecs, Decoder, Encoder, FrameEvent, MessageKind, MessageLimits, Opcode, Role, deflate,
    encode_control, encode_message,
};

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 1 << 20,
    fragments_max: 1 << 17,
    inflate_ratio_max: 0,
};

#[derive(Clone, Debug)]
struct Sent {
    kind: MessageKind,
    data: Vec<u8>,
    /// Sizes of all fragments but the last, in bytes.
    fragments: Vec<usize>,
    /// Whether a ping follows each fragment.
    pings: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let text = "\\PC{0,80}".prop_map(|text| (MessageKind::Text, text.into_bytes()));
    let long = ("[a-zé€𐍈]{1,9}", 1..2000usize)
        .prop_map(|(word, times)| (MessageKind::Text, word.repeat(times).into_bytes()));
    let binary = prop::collection::vec(any::<u8>(), 0..70_000);
    let binary = binary.prop_map(|data| (MessageKind::Binary, data));
    let payload = prop_oneof![4 => text, 1 => long, 1 => binary];
    let fragments = prop::collection::vec(0..300usize, 0..5);
    (payload, fragments, any::<bool>()).prop_map(|((kind, data), fragments, pings)| Sent {
        kind,
        data,
        fragments,
        pings,
    })
}

fn agreed() -> impl Strategy<Value = Option<deflate::DeflateParams>> {
    (any::<bool>(), any::<bool>(), 8..=15u8, 8..=15u8).prop_map(|(on, takeover, server, client)| {
        let policy = deflate::DeflatePolicy {
            takeover,
            server_window_bits: server,
            client_window_bits: client,
        };
        let offer = ["permessage-deflate; client_max_window_bits"];
        on.then(|| deflate::negotiate(offer.into_iter(), &policy).unwrap())
    })
}

/// Splits a frame into the fragments of `sent`, and appends them to `out`.
fn fragment(out: &mut Vec<u8>, whole: &[u8], sent: &Sent, mask: Option<[u8; 4]>) {
    // The frame is not masked, so that its payload can be cut; each fragment is masked afterwards.
    let header = match whole[1] {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    let mut rest = &whole[header..];
    let mut first = whole[0] & 0x4f;
    let mut piece = Vec::new();
    for (index, size) in sent.fragments.iter().map(Some).chain([None]).enumerate() {
        let part;
        (part, rest) = rest.split_at(size.map_or(rest.len(), |&size| size.min(rest.len())));
        piece.clear();
        encode_message(&mut piece, MessageKind::Binary, part, mask);
        piece[0] = first | if size.is_none() { 0x80 } else { 0 };
        out.extend_from_slice(&piece);
        first = 0;
        if sent.pings && size.is_some() {
            encode_control(out, Opcode::Ping, &[index as u8], mask);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn decode_after_encode_is_identity(
        messages in prop::collection::vec(sent(), 0..8),
        agreed in agreed(),
        to_server in any::<bool>(),
        key in any::<[u8; 4]>(),
        seed in any::<u64>(),
        piece_max in prop_oneof![Just(1usize), 1..20usize, 1..5000usize, Just(1 << 20)],
    ) {
        let (sender, receiver, mask) = if to_server {
            (Role::Client, Role::Server, Some(key))
        } else {
            (Role::Server, Role::Client, None)
        };
        let mut codecs = Codecs::new();
        let mut encoder = Encoder::new(sender, agreed);
        let mut wire = Vec::new();
        let mut whole = Vec::new();
        for message in &messages {
            whole.clear();
            encoder.encode(&mut whole, message.kind, &message.data, &mut codecs, None);
            fragment(&mut wire, &whole, message, mask);
        }

        let mut decoder = Decoder::new(receiver, agreed);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut expected = messages.iter();
        let mut pings = 0;
        let mut given = 0;
        while given < wire.len() {
            let count = random.usize(1..=piece_max.min(wire.len() - given));
            let mut input = &mut wire[given..given + count];
            given += count;
            while !input.is_empty() {
                let left = input.len();
                let (taken, event) = decoder.decode(input, &mut codecs, &LIMITS).unwrap();
                match event {
                    Some(FrameEvent::Message { kind, data }) => {
                        let message = expected.next().expect("no more than was sent");
                        prop_assert_eq!(kind, message.kind);
                        prop_assert!(data == &message.data[..]);
                    }
                    Some(FrameEvent::Ping(data)) => {
                        prop_assert_eq!(data.len(), 1);
                        pings += 1;
                    }
                    Some(other) => prop_assert!(false, "{:?}", other),
                    None => prop_assert_eq!(taken, left),
                }
                input = &mut input[taken..];
            }
            // The decoder may use a buffer of twice the input's size or one from the pool, plus its own state and the
            // peer's compression context.
            let context_bytes = agreed.map_or(0, |agreed| match receiver {
                Role::Server => 1 << agreed.client_window_bits(),
                Role::Client => 1 << agreed.server_window_bits(),
            });
            prop_assert!(decoder.heap_bytes() <= (2 * given).max(16 * 1024) + 1024 + context_bytes);
        }
        prop_assert!(expected.next().is_none());
        prop_assert!(!decoder.is_midway());
        let fragments: usize =
            messages.iter().filter(|message| message.pings).map(|message| message.fragments.len()).sum();
        prop_assert_eq!(pings, fragments);
        if agreed.is_none() {
            prop_assert_eq!(decoder.heap_bytes(), 0);
        }
    }
}

/// If 16 MiB of a message are announced and little is received, memory is proportional to the
/// received bytes.
#[test]
fn memory_follows_what_came() {
    let limits = MessageLimits {
        message_bytes_max: 16 << 20,
        ..LIMITS
    };
    let mut codecs = Codecs::new();
    let mut decoder = Decoder::new(Role::Client, None);
    let mut given = 10;
    let mut header = [0x82, 127, 0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(
        decoder.decode(&mut header, &mut codecs, &limits),
        Ok((10, None))
    );
    while given < 1 << 20 {
        assert!(decoder.heap_bytes() <= 2 * given + 1024, "{given}");
        let mut piece = [7; 1000];
        assert_eq!(
            decoder.decode(&mut piece, &mut codecs, &limits),
            Ok((1000, None))
        );
        given += 1000;
    }
}

/// A message in one frame arrives in many pieces. Its buffer doubles a few times, and the final size of the buffer is
/// exactly the message's length.
#[test]
fn a_buffer_grows_seldom_and_to_no_more_than_its_message() {
    const BYTES: usize = 600_000;
    let mut wire = Vec::new();
    encode_message(&mut wire, MessageKind::Binary, &[7; BYTES], None);
    let mut codecs = Codecs::new();
    let mut decoder = Decoder::new(Role::Client, None);
    let mut sizes = Vec::new();
    let last = wire.len() - 1000;
    for piece in wire[..last].chunks_mut(1000) {
        let decoded = decoder.decode(piece, &mut codecs, &LIMITS);
        assert!(matches!(decoded, Ok((_, None))), "{decoded:?}");
        sizes.push(decoder.heap_bytes());
    }
    let held = sizes[sizes.len() - 1];
    assert!((BYTES..BYTES + 1024).contains(&held), "{held}");
    sizes.dedup();
    assert!(sizes.len() <= 12, "{sizes:?}");
}

/// Decoding takes linear time: a message of four times the size takes about four times, not sixteen times as long.
#[test]
fn large_fragmented_messages_are_linear() {
    for (size, part) in [
        (1 << 20, 64),
        (4 << 20, 64),
        (16 << 20, 64),
        (16 << 20, 1 << 16),
    ] {
        let mut wire = Vec::new();
        let mut frame = Vec::new();
        encode_message(&mut frame, MessageKind::Text, &vec![b'x'; part], None);
        for index in 0..size / part {
            frame[0] = u8::from(index == 0) | if index + 1 == size / part { 0x80 } else { 0 };
            wire.extend_from_slice(&frame);
        }
        let limits = MessageLimits {
            message_bytes_max: size,
            fragments_max: (size / part) as u32,
            inflate_ratio_max: 0,
        };
        let mut codecs = Codecs::new();
        let mut decoder = Decoder::new(Role::Client, None);
        let mut messages = 0;
        for piece in wire.chunks_mut(16 * 1024) {
            // A message of 16 MiB is read 16 KiB at a time. If all of it were copied each time, 8 GiB would be copied
            // and the test would not end.
            if let (_, Some(FrameEvent::Message { data, .. })) =
                decoder.decode(piece, &mut codecs, &limits).unwrap()
            {
                assert_eq!(data.len(), size);
                messages += 1;
            }
        }
        assert_eq!(messages, 1);
    }
}
