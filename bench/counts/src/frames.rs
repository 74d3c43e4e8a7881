//! Measured paths that only read or write WebSocket frames, as a server does.

use std::hint::black_box;

use veche_proto::websocket::{
    Codecs, Decoder, Encoder, FrameEvent, MessageKind, MessageLimits, Role,
};

use crate::Path;
use crate::client::frame;

const LIMITS: MessageLimits = MessageLimits {
    message_bytes_max: 64 << 10,
    fragments_max: 16,
    inflate_ratio_max: 0,
};

/// Reads masked text frames that are complete in the input.
pub(crate) fn received(bytes: usize, count: u32) -> Path {
    let mut decoder = Decoder::new(Role::Server, None);
    let mut codecs = Codecs::new();
    let masked = frame(&vec![b'x'; bytes]);
    let mut input: Vec<Vec<u8>> = (0..count).map(|_| masked.clone()).collect();
    Path::new(move || {
        for input in &mut input {
            match decoder.decode(black_box(input), &mut codecs, &LIMITS) {
                Ok((_, Some(FrameEvent::Message { data, .. }))) if data.len() == bytes => {}
                other => return Err(format!("{other:?}")),
            }
        }
        Ok(())
    })
}

/// Writes text frames into a buffer that has room.
pub(crate) fn sent(bytes: usize, count: u32) -> Path {
    let mut encoder = Encoder::new(Role::Server, None);
    let mut codecs = Codecs::new();
    let data = vec![b'x'; bytes];
    let mut out = Vec::with_capacity(bytes + 16);
    Path::new(move || {
        for _ in 0..count {
            out.clear();
            encoder.encode(
                &mut out,
                MessageKind::Text,
                black_box(&data),
                &mut codecs,
                None,
            );
            black_box(&out);
        }
        match out.len() > bytes {
            true => Ok(()),
            false => Err(format!("{} bytes were written", out.len())),
        }
    })
}
