//! Decodes arbitrary bytes as the output of a worker process. The frames must be the same however the bytes are split.
//! Decoding must not panic or produce more effects than the frames have bytes for, and a broken stream must stay
//! broken.
//!
//! The first byte of the input selects how the rest is split, and the events that the worker is handling.

use veche_runtime::wire::{
    CallBridge, EffectBuilder, EventName, EventOrigin, Frame, FrameDecoder, FrameError,
    FrameLimits, FromWorker, ToWorker,
};
use veche_runtime::{Attribute, Effect, Effects, Token};
use veche_types::{ConnectionId, WorkerId};

const LIMITS: FrameLimits = FrameLimits {
    head_bytes_max: 4096,
    payload_bytes_max: 4096,
};

const CONNECTION: ConnectionId = ConnectionId {
    index: 3,
    generation: 1,
};

/// Runs one input; panics on a finding.
pub fn run(input: &[u8]) {
    let Some((choice, stream)) = input.split_first() else {
        return;
    };
    let whole = frames(stream, stream.len().max(1));
    let pieces = frames(stream, usize::from(*choice) % 32 + 1);
    assert_eq!(whole, pieces);
    for (head, payload) in &whole.0 {
        let frame = Frame { head, payload };
        read(frame, usize::from(*choice));
        let _ = ToWorker::read(frame);
    }
}

type Frames = (Vec<(Vec<u8>, Vec<u8>)>, Option<FrameError>);

fn frames(stream: &[u8], size: usize) -> Frames {
    let mut decoder = FrameDecoder::new(LIMITS);
    let mut found = Vec::new();
    for mut piece in stream.chunks(size) {
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(Frame { head, payload })) => {
                    assert!(!head.is_empty() && head.len() <= LIMITS.head_bytes_max);
                    assert!(payload.len() <= LIMITS.payload_bytes_max);
                    found.push((head.to_vec(), payload.to_vec()));
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.decode(&mut &b"more"[..]), Err(error));
                    return (found, Some(error));
                }
            }
        }
    }
    (found, None)
}

struct NoBridge;

impl CallBridge for NoBridge {
    fn token(&mut self) -> Token {
        Token(1)
    }

    fn set_attribute(&mut self, _: veche_calls::WorkerConnection, _: &str, _: Option<Attribute>) {}
}

fn read(frame: Frame<'_>, choice: usize) {
    let name = |id: u64| EventName::ALL[(id as usize).wrapping_add(choice) % EventName::ALL.len()];
    let in_hand = |id: u64| (id < 64).then(|| name(id));
    let Ok(read) = FromWorker::read(frame, in_hand) else {
        return;
    };
    let origin = |event: Option<u64>| match event.map(name) {
        None | Some(EventName::Start | EventName::Stop) => EventOrigin::Worker,
        Some(EventName::Open) => EventOrigin::Handshake(CONNECTION),
        Some(EventName::Message | EventName::Close) => EventOrigin::Connection(CONNECTION),
        Some(EventName::Request) => EventOrigin::Request(CONNECTION),
        Some(_) => EventOrigin::Hook(7),
    };
    let mut effects = Effects::default();
    let carrier = |event| EffectBuilder {
        worker: WorkerId(0),
        origin: origin(event),
    };
    match read {
        FromWorker::Handled(handled) => {
            let is_over = handled.end.is_some();
            let event = handled.event;
            let carried = carrier(event).add_effects(handled, &mut NoBridge, &mut effects);
            carried.expect("a few kilobytes have room");
            let answers = effects
                .list
                .iter()
                .filter(|effect| is_answer(effect))
                .count();
            // Earlier frames may have answered a request in parts.
            let owes =
                is_over && !matches!(origin(event), EventOrigin::Worker | EventOrigin::Request(_));
            assert!(answers <= 1 && (answers == 1 || !owes), "{effects:?}");
        }
        FromWorker::Call(call) => {
            let is_effect = carrier(call.event).add_call(call, Token(2), &mut effects);
            assert_eq!(is_effect, Ok(!effects.is_empty()));
        }
        FromWorker::Hello(_) | FromWorker::Cancel(_) => {}
    }
}

fn is_answer(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Handshake { .. }
            | Effect::Respond { .. }
            | Effect::RespondFile { .. }
            | Effect::Hook { .. }
            | Effect::Ready { .. }
            | Effect::Failed { .. }
    )
}
