//! The codec's cost of a WebSocket message: decodes a client's frame and appends the server's echo, in nanoseconds per
//! message, best of several rounds.
//!
//! `cargo run --profile bench -p veche-proto --example websocket_ns`

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark has to read the clock"
)]

use std::hint::black_box;
use std::time::Instant;

use veche_proto::websocket::{
    Codecs, Decoder, Encoder, FrameEvent, MessageKind, MessageLimits, Role, deflate, encode_message,
};

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 1 << 20,
    fragments_max: 1024,
    inflate_ratio_max: 0,
};
const ROUNDS: usize = 20;

fn main() {
    println!("bytes kind    whole  cut-in-two  deflate");
    for bytes in [20, 1024, 8192] {
        for kind in [MessageKind::Text, MessageKind::Binary] {
            let whole = echo(kind, bytes, None, false);
            let cut = echo(kind, bytes, None, true);
            let agreed = deflate::negotiate(
                ["permessage-deflate"].into_iter(),
                &deflate::DeflatePolicy::default(),
            );
            let deflated = echo(kind, bytes, agreed, false);
            println!(
                "{bytes:5} {:6} {whole:6.1} {cut:11.1} {deflated:8.1}",
                format!("{kind:?}")
            );
        }
    }
}

/// Returns nanoseconds per message.
fn echo(kind: MessageKind, bytes: usize, agreed: Option<deflate::DeflateParams>, cut: bool) -> f64 {
    // JSON-like, so that deflate has something to compress.
    let text = r#"{"channel":"news","offset":12345,"data":{"user":"tester01","text":"hello"}},"#;
    let data = &text.repeat(bytes / text.len() + 1).into_bytes()[..bytes];
    let mut codecs = Codecs::new();
    let mut sending = Codecs::new();
    let mut frame = Vec::new();
    let mask = Some([0x37, 0xfa, 0x21, 0x3d]);
    match agreed {
        Some(_) => {
            Encoder::new(Role::Client, agreed).encode(&mut frame, kind, data, &mut codecs, mask);
        }
        None => encode_message(&mut frame, kind, data, mask),
    }
    let mut decoder = Decoder::new(Role::Server, agreed);
    let mut encoder = Encoder::new(Role::Server, agreed);
    let mut out = Vec::<u8>::with_capacity(2 * bytes + 64);
    // If the addresses of two buffers differ by nearly a multiple of 4 KiB, each load waits for an
    // unrelated store, which costs 3 us for 8 KiB. So the buffers are placed 2 KiB apart modulo 4
    // KiB.
    let mut receive = vec![0; 32 * 1024];
    let apart = (out.as_ptr() as usize).wrapping_sub(receive.as_ptr() as usize);
    let start = apart.wrapping_sub(2048) % 4096;
    let input = &mut receive[start..start + frame.len()];
    let messages = if agreed.is_some() {
        2_000
    } else {
        100_000_000 / (bytes + 1000)
    };
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..messages {
            // In a server, the kernel writes the bytes here. The copy is part of neither decoding
            // nor encoding, but its cost is small compared with both.
            input.copy_from_slice(&frame);
            out.clear();
            let split = if cut { frame.len() / 2 } else { 0 };
            let (first, second) = input.split_at_mut(split);
            for piece in [first, second] {
                let (_, event) = decoder.decode(piece, &mut codecs, &LIMITS).expect("valid");
                if let Some(FrameEvent::Message { kind, data }) = event {
                    encoder.encode(&mut out, kind, data, &mut sending, None);
                }
            }
            black_box(&out);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / messages as f64);
        assert!(!out.is_empty());
    }
    best
}
