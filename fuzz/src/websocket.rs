//! Passes arbitrary bytes to a decoder. The decoder must not panic or exceed its memory limits, and must return the
//! same events however the bytes are split. Every message must survive encoding and decoding.
//!
//! The first byte of the input selects compression and limits, the second how the bytes are split; the rest are the
//! received bytes.

use std::cell::RefCell;

use veche_proto::websocket::{
    Codecs, Decoder, Encoder, FrameEvent, MessageKind, MessageLimits, ProtocolError, Role, deflate,
};

/// An event of a decoder, as an owned value.
#[derive(Debug, PartialEq, Eq)]
enum DecodedEvent {
    Message(MessageKind, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    ProtocolError(ProtocolError),
}

thread_local! {
    // All inputs share the codecs, as all connections of a worker share theirs.
    static CODECS: RefCell<Codecs> = RefCell::new(Codecs::new());
}

/// Passes one input to a decoder. Panics if the decoder behaves wrongly.
pub fn run(role: Role, data: &[u8]) {
    CODECS.with_borrow_mut(|codecs| run_with(role, data, codecs));
}

fn run_with(role: Role, data: &[u8], codecs: &mut Codecs) {
    let [config, split, wire @ ..] = data else {
        return;
    };
    let agreed = agreed(config & 3);
    let limits = MessageLimits {
        message_bytes_max: if config & 4 == 0 { 64 * 1024 } else { 100 },
        fragments_max: if config & 8 == 0 { 1000 } else { 3 },
        inflate_ratio_max: 0,
    };
    let whole = decode(role, agreed, limits, wire, codecs, |rest| rest);
    let mut seed = u32::from(*split);
    let pieces = decode(role, agreed, limits, wire, codecs, |rest| {
        // A seed below 16 selects pieces of equal size. A larger one starts a linear congruential generator, which
        // selects pieces of 1 to 16 bytes.
        if *split < 16 {
            return rest.min(usize::from(*split) + 1);
        }
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        rest.min((seed >> 28) as usize + 1)
    });
    assert_eq!(whole, pieces, "splitting changes the messages");
    round_trip(role, agreed, limits, &whole, codecs);
}

fn agreed(config: u8) -> Option<deflate::DeflateParams> {
    let offer = match config {
        0 => return None,
        1 => "permessage-deflate",
        2 => "permessage-deflate; client_max_window_bits",
        _ => "permessage-deflate; client_max_window_bits=9; server_max_window_bits=8",
    };
    let policy = deflate::DeflatePolicy {
        takeover: config >= 2,
        ..Default::default()
    };
    deflate::negotiate([offer].into_iter(), &policy)
}

fn decode(
    role: Role,
    agreed: Option<deflate::DeflateParams>,
    limits: MessageLimits,
    wire: &[u8],
    codecs: &mut Codecs,
    mut next: impl FnMut(usize) -> usize,
) -> Vec<DecodedEvent> {
    let mut decoder = Decoder::new(role, agreed);
    let mut events = Vec::new();
    let mut at = 0;
    let mut ended = false;
    while at < wire.len() {
        let count = next(wire.len() - at);
        let mut input = wire[at..at + count].to_vec();
        at += count;
        let mut input = &mut input[..];
        while !input.is_empty() {
            let given = input.len();
            let (taken, event) = match decoder.decode(input, codecs, &limits) {
                Ok(progress) => progress,
                Err(error) => {
                    assert!(error.to_string().len() <= 123);
                    events.push(DecodedEvent::ProtocolError(error));
                    return events;
                }
            };
            assert!(event.is_some() || taken == given);
            assert!(event.is_none() || !ended, "an event after a close");
            match event {
                Some(FrameEvent::Message { kind, data }) => {
                    assert!(data.len() <= limits.message_bytes_max);
                    assert!(kind == MessageKind::Binary || std::str::from_utf8(data).is_ok());
                    events.push(DecodedEvent::Message(kind, data.to_vec()));
                }
                Some(FrameEvent::Ping(data)) => events.push(DecodedEvent::Ping(data.to_vec())),
                Some(FrameEvent::Pong(data)) => events.push(DecodedEvent::Pong(data.to_vec())),
                Some(FrameEvent::Close { code, reason }) => {
                    ended = true;
                    events.push(DecodedEvent::Close(code, reason.to_owned()));
                }
                None => {}
            }
            input = &mut input[taken..];
        }
        // The limit: twice the received bytes or a pooled buffer, plus the decoder's state, plus a
        // window if the peer keeps its compression context.
        let context_bytes = 33 * 1024 * usize::from(agreed.is_some());
        assert!(decoder.heap_bytes() <= (2 * at).max(16 * 1024) + 1024 + context_bytes);
        assert!(!(ended && decoder.is_midway()));
    }
    events
}

/// Encodes the decoded messages again in the peer's role, and checks that decoding returns the same
/// messages.
fn round_trip(
    role: Role,
    agreed: Option<deflate::DeflateParams>,
    limits: MessageLimits,
    events: &[DecodedEvent],
    codecs: &mut Codecs,
) {
    let (peer, mask) = match role {
        Role::Server => (Role::Client, Some([1, 2, 3, 4])),
        Role::Client => (Role::Server, None),
    };
    let mut encoder = Encoder::new(peer, agreed);
    let mut out = Vec::new();
    for each in events {
        if let DecodedEvent::Message(kind, data) = each {
            encoder.encode(&mut out, *kind, data, codecs, mask);
        }
    }
    let again = decode(role, agreed, limits, &out, codecs, |rest| rest);
    let messages = events
        .iter()
        .filter(|each| matches!(each, DecodedEvent::Message(..)));
    assert!(again.iter().eq(messages), "encode and decode: {again:?}");
}
