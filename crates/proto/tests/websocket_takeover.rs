//! Tests of compression contexts that are kept between messages. The peers in these tests use one deflate stream for a
//! whole connection, as RFC 7692 describes. Every message must arrive unchanged, for any sequence of messages, mix of
//! connections, and splits. The memory of a context is limited and counted in a budget.

use std::sync::Arc;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use proptest::prelude::*;
use veche_proto::websocket::deflate::{
    DeflateParams, DeflatePolicy, KEPT_WINDOW_BITS_MAX, negotiate,
};
use veche_proto::websocket::{
    Codecs, Decoder, DeflateBudget, Encoder, FragmentFlags, FrameEvent, MessageKind, MessageLimits,
    Opcode, ProtocolError, Role, encode_control, encode_message,
};

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 1 << 20,
    fragments_max: 1000,
    inflate_ratio_max: 0,
};

const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// Maximum memory of a context in addition to its window, in bytes: its box, its reservation and a flag.
const CONTEXT_BYTES: usize = 64;

fn agreed(offer: &str, takeover: bool) -> DeflateParams {
    let policy = DeflatePolicy {
        takeover,
        ..DeflatePolicy::default()
    };
    let offer = format!("permessage-deflate; client_max_window_bits{offer}");
    negotiate([offer.as_str()].into_iter(), &policy).expect("a valid offer")
}

fn windows(server: u8, client: u8) -> DeflateParams {
    agreed(&format!("={client}; server_max_window_bits={server}"), true)
}

/// Returns the payload of an unmasked frame, and whether the frame is marked as compressed.
fn payload(frame: &[u8]) -> (&[u8], bool) {
    let start = match frame[1] {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    (&frame[start..], frame[0] & 0x40 != 0)
}

/// A decompressor as in other implementations: it uses one stream for all messages of a connection.
struct Receiver(Decompress);

impl Receiver {
    fn new(window_bits: u8) -> Self {
        Self(Decompress::new_with_window_bits(false, window_bits.max(9)))
    }

    fn read(&mut self, frame: &[u8]) -> Vec<u8> {
        let (payload, is_compressed) = payload(frame);
        if !is_compressed {
            return payload.to_vec();
        }
        let input = [payload, &TAIL].concat();
        let start = self.0.total_in();
        let mut out = Vec::new();
        loop {
            out.reserve(4096);
            let taken = (self.0.total_in() - start) as usize;
            let flush = FlushDecompress::Sync;
            self.0
                .decompress_vec(&input[taken..], &mut out, flush)
                .expect("a valid stream");
            if out.len() < out.capacity() {
                return out;
            }
        }
    }
}

/// A compressor as in other implementations: it uses one stream for all messages of a connection.
struct Sender {
    stream: Compress,
    level: u32,
    window_bits: u8,
    history: Vec<u8>,
}

impl Sender {
    fn new(level: u32, window_bits: u8) -> Self {
        let window_bits = window_bits.max(9);
        let level_of = Compression::new(level);
        Self {
            stream: Compress::new_with_window_bits(level_of, false, window_bits),
            level,
            window_bits,
            history: Vec::new(),
        }
    }

    /// Returns the compressed message. The message ends with a final block if `is_final` is set, otherwise with a flush
    /// (RFC 7692 sections 7.2.3.4 and 7.2.3.3).
    fn write(&mut self, message: &[u8], is_final: bool) -> Vec<u8> {
        let flush = match is_final {
            true => FlushCompress::Finish,
            false => FlushCompress::Sync,
        };
        let mut out = Vec::with_capacity(message.len() * 2 + 1000);
        let status = self.stream.compress_vec(message, &mut out, flush);
        status.expect("it takes any input");
        self.history.extend_from_slice(message);
        if is_final {
            // A final block ends the deflate stream. A new stream continues with the same context.
            out.push(0);
            let level = Compression::new(self.level);
            self.stream = Compress::new_with_window_bits(level, false, self.window_bits);
            let window = self.history.len().saturating_sub(1 << self.window_bits);
            let window = &self.history[window..];
            if !window.is_empty() {
                self.stream.set_dictionary(window).expect("a raw stream");
            }
        } else if out.ends_with(&TAIL) {
            out.truncate(out.len() - TAIL.len());
        } else {
            assert!(message.is_empty());
            out.push(0);
        }
        out
    }
}

/// Returns a message which may repeat earlier messages and parts of itself.
fn message(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = [0, 4, 5, 40, 300, 5_000, 40_000][random.usize(..7)];
    let length = random.usize(..=length);
    match random.u8(..5) {
        0 => (0..length).map(|_| random.u8(..)).collect(),
        _ => {
            let mut data = Vec::new();
            while data.len() < length {
                let word = random.u32(..300);
                data.extend_from_slice(format!("{{\"word{word}\":{}}}", word * 7919).as_bytes());
            }
            data.truncate(length);
            data
        }
    }
}

fn whole_frame(payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_message(&mut frame, MessageKind::Binary, payload, mask);
    frame[0] |= 0x40;
    frame
}

/// Returns a message that is marked as compressed, in up to four fragments.
fn frames(payload: &[u8], mask: Option<[u8; 4]>, random: &mut fastrand::Rng) -> Vec<u8> {
    let parts = random.usize(1..=4);
    let size = payload.len().div_ceil(parts).max(1);
    let mut chunks: Vec<&[u8]> = payload.chunks(size).collect();
    if chunks.is_empty() || random.bool() {
        chunks.push(b"");
    }
    let mut out = Vec::new();
    let last = chunks.len() - 1;
    for (index, chunk) in chunks.into_iter().enumerate() {
        let mut frame = whole_frame(chunk, mask);
        let first = if index == 0 { 0x42 } else { 0 };
        frame[0] = first | if index == last { 0x80 } else { 0 };
        out.extend_from_slice(&frame);
    }
    out
}

/// Encodes a message in nonempty parts of at most this length; returns a frame for each part.
fn in_parts(
    encoder: &mut Encoder,
    data: &[u8],
    bytes_max: usize,
    codecs: &mut Codecs,
) -> Vec<Vec<u8>> {
    let chunks = data.chunks(bytes_max).enumerate();
    let frames = chunks.map(|(place, chunk)| {
        let part = FragmentFlags {
            is_first: place == 0,
            is_last: (place + 1) * bytes_max >= data.len(),
        };
        let mut frame = Vec::new();
        encoder.encode_part(&mut frame, MessageKind::Binary, chunk, part, codecs, None);
        frame
    });
    frames.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    /// Several connections share a compressor. Each receiver has its own decompressor, which must inflate all messages
    /// of its connection.
    #[test]
    fn kept_streams_inflate_what_is_sent(
        bits in prop::collection::vec(8..=15u8, 1..4),
        to_server in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let role = if to_server { Role::Client } else { Role::Server };
        let mut codecs = Codecs::new();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut connections: Vec<_> = bits
            .iter()
            .map(|&bits| {
                (Encoder::new(role, Some(windows(bits, bits))), Receiver::new(bits), bits)
            })
            .collect();
        for _ in 0..60 {
            let which = random.usize(..connections.len());
            let (encoder, receiver, bits) = &mut connections[which];
            // Sends several messages in a row on this connection, so that the shared compressor continues its stream.
            for _ in 0..random.usize(1..4) {
                let data = message(&mut random);
                if random.u8(..4) == 0 && !data.is_empty() {
                    let parts = in_parts(encoder, &data, data.len().div_ceil(3), &mut codecs);
                    let payloads: Vec<u8> = parts.iter().flat_map(|one| payload(one).0).copied().collect();
                    prop_assert!(receiver.read(&whole_frame(&payloads, None)) == data);
                    continue;
                }
                let mut frame = Vec::new();
                encoder.encode(&mut frame, MessageKind::Binary, &data, &mut codecs, None);
                prop_assert!(frame.len() <= data.len() + data.len() / 8 + 20);
                prop_assert!(receiver.read(&frame) == data);
                let window_bytes = 1 << (*bits).min(KEPT_WINDOW_BITS_MAX);
                prop_assert!(encoder.heap_bytes() <= window_bytes + CONTEXT_BYTES);
            }
            if random.u8(..10) == 0 {
                encoder.release_idle_context();
            }
        }
    }

    /// Several connections share a decompressor; each sender has its own compressor.
    #[test]
    fn what_kept_streams_send_is_inflated(
        bits in prop::collection::vec(8..=15u8, 1..4),
        levels in prop::collection::vec(0..=9u32, 3),
        to_server in any::<bool>(),
        finals in any::<bool>(),
        piece_max in prop_oneof![1..20usize, Just(1 << 20)],
        seed in any::<u64>(),
    ) {
        let (role, mask) = match to_server {
            true => (Role::Server, Some([7, 1, 9, 3])),
            false => (Role::Client, None),
        };
        let mut codecs = Codecs::new();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut connections: Vec<_> = bits
            .iter()
            .zip(levels)
            .map(|(&bits, level)| {
                // The library's streams have windows of at least 9 bits, and use the whole window.
                let bits = bits.max(9);
                let agreed = Some(windows(bits, bits));
                let decoder = match role {
                    Role::Server => Decoder::accept(agreed, &codecs),
                    Role::Client => Decoder::new(role, agreed),
                };
                (Sender::new(level, bits), decoder, bits)
            })
            .collect();
        for _ in 0..40 {
            let which = random.usize(..connections.len());
            let (sender, decoder, bits) = &mut connections[which];
            let data = message(&mut random);
            let compressed = sender.write(&data, finals && random.u8(..4) == 0);
            let mut wire = frames(&compressed, mask, &mut random);
            let mut received = None;
            let mut rest = &mut wire[..];
            while !rest.is_empty() {
                let count = random.usize(1..=piece_max.min(rest.len()));
                let (mut piece, behind) = rest.split_at_mut(count);
                while !piece.is_empty() {
                    let (taken, event) = decoder.decode(piece, &mut codecs, &LIMITS).unwrap();
                    if let Some(FrameEvent::Message { data, .. }) = event {
                        received = Some(data.to_vec());
                    }
                    piece = &mut piece[taken..];
                }
                rest = behind;
            }
            prop_assert!(received.as_ref() == Some(&data));
            prop_assert!(decoder.heap_bytes() <= (1 << *bits) + CONTEXT_BYTES);
        }
    }

    /// The work counted for a sequence of messages does not depend on how its bytes are split.
    #[test]
    fn work_depends_on_messages_alone(seed in any::<u64>(), piece_max in 1..40usize) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sender = Sender::new(6, 15);
        let payloads: Vec<Vec<u8>> = (0..10)
            .map(|_| sender.write(&message(&mut random), random.bool()))
            .collect();
        let mut work = Vec::new();
        for piece_max in [usize::MAX, piece_max] {
            let mut codecs = Codecs::new();
            let mut decoder = Decoder::new(Role::Client, Some(windows(15, 15)));
            for payload in &payloads {
                for piece in whole_frame(payload, None).chunks_mut(piece_max) {
                    decoder.decode(piece, &mut codecs, &LIMITS).unwrap();
                }
            }
            work.push(codecs.take_work());
            prop_assert_eq!(codecs.take_work(), 0);
        }
        prop_assert_eq!(work[0], work[1]);
    }
}

/// A message encoded in parts is decoded unchanged, for any negotiated parameters and with control frames in between.
#[test]
fn parts_make_the_message() {
    let data: Vec<u8> = (0..20_000_u32)
        .flat_map(|number| (number / 7).to_be_bytes())
        .collect();
    for agreed in [None, Some(windows(15, 15)), Some(agreed("", false))] {
        let (mut sending, mut receiving) = (Codecs::new(), Codecs::new());
        let mut encoder = Encoder::new(Role::Server, agreed);
        let mut decoder = Decoder::new(Role::Client, agreed);
        for bytes_max in [data.len(), 30_000, 3_000] {
            let mut frames = in_parts(&mut encoder, &data, bytes_max, &mut sending);
            let count = data.len().div_ceil(bytes_max);
            assert_eq!(frames.len(), count);
            for (place, frame) in frames.iter_mut().enumerate() {
                encode_control(frame, Opcode::Ping, b"", None);
                let first = if place > 0 {
                    0
                } else if agreed.is_some() {
                    0x42
                } else {
                    2
                };
                let last = if place + 1 == count { 0x80 } else { 0 };
                assert_eq!(frame[0], first | last);
            }
            let mut wire = frames.concat();
            let (mut rest, mut pings, mut messages) = (&mut wire[..], 0, 0);
            while !rest.is_empty() {
                let (taken, event) = decoder.decode(rest, &mut receiving, &LIMITS).unwrap();
                match event {
                    Some(FrameEvent::Message { data: received, .. }) => {
                        assert!(*received == data);
                        messages += 1;
                    }
                    Some(FrameEvent::Ping(_)) => pings += 1,
                    other => panic!("{other:?}"),
                }
                rest = &mut rest[taken..];
            }
            assert_eq!((messages, pings), (1, count));
        }
        let saves = sending.take_work() > 0;
        assert_eq!(saves, agreed.is_some());
    }
}

/// A final block may end the stream within a message. Later data may still refer to earlier messages (RFC 7692
/// section 7.2.3.4).
#[test]
fn a_final_block_does_not_end_the_context() {
    let mut codecs = Codecs::new();
    let mut decoder = Decoder::new(Role::Client, Some(windows(15, 15)));
    let mut hear = |payload: &[u8]| {
        let mut frame = whole_frame(payload, None);
        match decoder.decode(&mut frame, &mut codecs, &LIMITS) {
            Ok((_, Some(FrameEvent::Message { data, .. }))) => data.to_vec(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(hear(&[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0]), b"Hello");
    // This message begins with an empty final block, after which a block copies the five bytes before it. The next
    // message copies the same bytes.
    let back = [0xf2, 0, 0x11, 0, 0];
    assert_eq!(hear(&[&[3, 0][..], &back].concat()), b"Hello");
    assert_eq!(hear(&back), b"Hello");
}

/// One direction may be negotiated without a context and the other with one.
#[test]
fn one_direction_may_keep_no_context() {
    let text = b"the same words, the same words again";
    for (parameter, server, client) in [
        ("; server_no_context_takeover", false, true),
        ("; client_no_context_takeover", true, false),
    ] {
        let agreed = agreed(parameter, true);
        for (role, keeps) in [(Role::Server, server), (Role::Client, client)] {
            let (receiver, mask) = match role {
                Role::Server => (Role::Client, None),
                Role::Client => (Role::Server, Some([1, 2, 3, 4])),
            };
            let (mut sending, mut receiving) = (Codecs::new(), Codecs::new());
            let mut encoder = Encoder::new(role, Some(agreed));
            let mut decoder = Decoder::new(receiver, Some(agreed));
            let mut sizes = Vec::new();
            for _ in 0..3 {
                let mut frame = Vec::new();
                encoder.encode(&mut frame, MessageKind::Text, text, &mut sending, mask);
                sizes.push(frame.len());
                match decoder.decode(&mut frame, &mut receiving, &LIMITS) {
                    Ok((_, Some(FrameEvent::Message { data, .. }))) => assert_eq!(data, text),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(
                sizes[1] < sizes[0],
                keeps,
                "{parameter} {role:?}: {sizes:?}"
            );
            assert_eq!(encoder.heap_bytes() > 0, keeps);
            assert_eq!(decoder.heap_bytes() > 0, keeps);
        }
    }
}

/// The client's window is reserved in the budget when it is negotiated, and the server's window as it grows. Both
/// reservations are released.
#[test]
fn contexts_stay_within_their_budget() {
    let budget = Arc::new(DeflateBudget::new(10_000));
    let receiving = Codecs::with_budget(Arc::clone(&budget));
    let mut sending = Codecs::with_budget(Arc::clone(&budget));
    let agreed = windows(15, 12);
    let first = Decoder::accept(Some(agreed), &receiving);
    let second = Decoder::accept(Some(agreed), &receiving);
    assert_eq!(first.deflate(), Some(agreed));
    assert_eq!(second.deflate(), Some(agreed));
    assert_eq!(budget.bytes(), 8192);
    let third = Decoder::accept(Some(agreed), &receiving).deflate().unwrap();
    assert!(third.client_no_context_takeover() && !third.server_no_context_takeover());
    let mut response = Vec::new();
    third.write_response(&mut response);
    assert!(
        String::from_utf8(response)
            .unwrap()
            .contains("client_no_context_takeover")
    );
    // Connections without a context use no memory of the budget.
    let alone = self::agreed("", false);
    assert_eq!(
        Decoder::accept(Some(alone), &receiving).deflate(),
        Some(alone)
    );
    assert_eq!(Decoder::accept(None, &receiving).deflate(), None);

    // The budget has 1,808 bytes left: the server's window grows to 1 KiB, and is dropped when it would need more.
    let mut encoder = Encoder::new(Role::Server, Some(agreed));
    let mut receiver = Receiver::new(15);
    let mut largest = 0;
    let mut were_given_up = 0;
    for number in 0..200_u32 {
        let data = format!("a message with the number {}", number * 7919);
        let mut frame = Vec::new();
        encoder.encode(
            &mut frame,
            MessageKind::Text,
            data.as_bytes(),
            &mut sending,
            None,
        );
        assert_eq!(receiver.read(&frame), data.as_bytes());
        assert!(budget.bytes() <= 10_000);
        largest = largest.max(encoder.heap_bytes());
        were_given_up += u32::from(encoder.heap_bytes() == 0);
    }
    assert!((1024..1024 + CONTEXT_BYTES).contains(&largest), "{largest}");
    assert!(were_given_up > 1);
    drop((first, second));
    assert_eq!(
        budget.bytes(),
        encoder.heap_bytes().next_multiple_of(64) - 64
    );
    drop(encoder);
    assert_eq!(budget.bytes(), 0);
}

/// A context that was not used since the last call of `release_idle_context` is released. The peer must still be able
/// to inflate later messages.
#[test]
fn an_idle_context_is_released() {
    let budget = Arc::new(DeflateBudget::default());
    let mut codecs = Codecs::with_budget(Arc::clone(&budget));
    let mut encoder = Encoder::new(Role::Server, Some(windows(15, 15)));
    let mut receiver = Receiver::new(15);
    let mut say = |encoder: &mut Encoder| {
        let text = b"as it was in the beginning";
        let mut frame = Vec::new();
        encoder.encode(&mut frame, MessageKind::Text, text, &mut codecs, None);
        assert_eq!(receiver.read(&frame), text);
        frame.len()
    };
    let first = say(&mut encoder);
    assert!(say(&mut encoder) < first);
    encoder.release_idle_context();
    assert!(say(&mut encoder) < first);
    encoder.release_idle_context();
    assert!(encoder.heap_bytes() > 0);
    encoder.release_idle_context();
    assert_eq!((encoder.heap_bytes(), budget.bytes()), (0, 0));
    assert_eq!(say(&mut encoder), first);
    assert!(say(&mut encoder) < first);
}

/// Work is counted for decompressed bytes and for streams, even if the message is refused, and for compression.
#[test]
fn work_is_counted() {
    let agreed = agreed("", false);
    let mut codecs = Codecs::new();
    let mut work_of = |payload: &[u8]| {
        let mut frame = whole_frame(payload, None);
        let mut decoder = Decoder::new(Role::Client, Some(agreed));
        let limits = MessageLimits {
            message_bytes_max: 65_000,
            ..LIMITS
        };
        let error = decoder.decode(&mut frame, &mut codecs, &limits).err();
        (codecs.take_work(), error)
    };
    let (empty, _) = work_of(&[3, 0]);
    let (final_blocks, _) = work_of(&[3, 0].repeat(8));
    assert!(final_blocks > 4 * empty, "{final_blocks} {empty}");
    let (refused, error) = work_of(&[3, 0].repeat(250));
    assert_eq!(error, Some(ProtocolError::TooManyFinalBlocks));
    assert!(refused >= final_blocks);
    let zeros = |length: usize| Sender::new(9, 15).write(&vec![0; length], false);
    assert!(zeros(65_000).len() < 90);
    let (inflated, error) = work_of(&zeros(65_000));
    assert_eq!(error, None);
    assert!((65_000..80_000).contains(&inflated), "{inflated}");
    let (too_far, error) = work_of(&zeros(65_001));
    assert_eq!(error, Some(ProtocolError::MessageTooBig));
    assert!((65_000..80_000).contains(&too_far), "{too_far}");
    // For uncompressed messages, no work is counted.
    let mut plain = Vec::new();
    encode_message(&mut plain, MessageKind::Binary, &[0; 1000], None);
    let mut decoder = Decoder::new(Role::Client, Some(agreed));
    decoder.decode(&mut plain, &mut codecs, &LIMITS).unwrap();
    assert_eq!(codecs.take_work(), 0);

    let mut out = Vec::new();
    let mut encoder = Encoder::new(Role::Server, Some(agreed));
    let mut work_to_send = |length: usize| {
        encoder.encode(
            &mut out,
            MessageKind::Text,
            &vec![b'x'; length],
            &mut codecs,
            None,
        );
        codecs.take_work()
    };
    let (short, long) = (work_to_send(40), work_to_send(40_000));
    assert!(short > 1000 && long > short + 40_000, "{short} {long}");
    assert_eq!(work_to_send(4), 0);
}

#[test]
fn a_peer_may_not_refer_beyond_what_was_agreed() {
    let mut sender = Sender::new(9, 15);
    let mut random = fastrand::Rng::with_seed(1);
    let far: Vec<u8> = (0..300).map(|_| random.u8(..)).collect();
    let between: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
    let mut codecs = Codecs::new();
    let mut decoder = Decoder::new(Role::Client, Some(windows(12, 12)));
    let mut errors = Vec::new();
    for message in [&far, &between, &far] {
        let mut frame = whole_frame(&sender.write(message, false), None);
        errors.push(decoder.decode(&mut frame, &mut codecs, &LIMITS).err());
    }
    assert_eq!(errors, [None, None, Some(ProtocolError::CorruptDeflate)]);
    assert_eq!(decoder.heap_bytes(), 0);
}

/// The last messages of two connections were equal, so the shared stream continues for the second connection. The
/// stream must not refer to earlier data of the first connection.
#[test]
fn nothing_of_another_connection_is_referred_to() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut noise = |length: usize| (0..length).map(|_| random.u8(..)).collect::<Vec<u8>>();
    let secret = noise(1000);
    let (one, two) = (noise(2048), noise(2048));
    let mut codecs = Codecs::new();
    let mut sending: Vec<_> = (0..2)
        .map(|_| {
            let encoder = Encoder::new(Role::Server, Some(windows(15, 15)));
            (encoder, Receiver::new(15))
        })
        .collect();
    let mut say = |which: usize, data: &[u8]| {
        let (encoder, receiver) = &mut sending[which];
        let mut frame = Vec::new();
        encoder.encode(&mut frame, MessageKind::Binary, data, &mut codecs, None);
        assert!(receiver.read(&frame) == data);
        frame.len()
    };
    say(1, &one);
    say(1, &two);
    say(0, &secret);
    say(0, &one);
    say(0, &two);
    assert!(say(1, &secret) >= secret.len());
}
