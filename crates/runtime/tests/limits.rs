//! Tests that hostile streams cause no panic and keep within the limits of memory, and that streams split
//! at any point give the same frames.

use proptest::prelude::*;
use veche_runtime::wire::{
    Frame, FrameDecoder, FrameError, FrameLimits, FrameTooLong, FromWorker, PREFIX_BYTES, ToWorker,
    encode,
};

const SMALL: FrameLimits = FrameLimits {
    head_bytes_max: 200,
    payload_bytes_max: 4096,
};

/// Returns a stream of frames made by `encode`.
fn stream(frames: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut wire = Vec::new();
    for (head, payload) in frames {
        let (one, other) = payload.split_at(payload.len() / 2);
        encode(&mut wire, SMALL, head, &[one, other]).expect("it is short");
    }
    wire
}

proptest! {
    #[test]
    fn frames_are_the_same_wherever_the_stream_is_cut(
        frames in prop::collection::vec(("[a-z\u{e9}\"]{0,40}", prop::collection::vec(any::<u8>(), 0..200)), 0..8),
        cuts in prop::collection::vec(1usize..90, 1..40),
    ) {
        let wire = stream(&frames);
        let mut decoder = FrameDecoder::new(SMALL);
        let mut found = Vec::new();
        let (mut rest, mut cuts) = (&wire[..], cuts.into_iter().cycle());
        while !rest.is_empty() {
            let size = cuts.next().unwrap_or(1).min(rest.len());
            let (mut input, after) = rest.split_at(size);
            while let Some(frame) = decoder.decode(&mut input).expect("good frames") {
                let head: String = serde_json::from_slice(frame.head).expect("a head");
                found.push((head, frame.payload.to_vec()));
            }
            prop_assert!(input.is_empty());
            rest = after;
        }
        prop_assert_eq!(found, frames);
        prop_assert!(!decoder.is_within_frame());
    }

    #[test]
    fn rubbish_is_refused_for_good_or_waited_for(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        size in 1usize..50,
    ) {
        let mut decoder = FrameDecoder::new(SMALL);
        let mut failed = None;
        for mut input in bytes.chunks(size) {
            loop {
                match decoder.decode(&mut input) {
                    Ok(Some(Frame { head, payload })) => {
                        prop_assert!(failed.is_none());
                        prop_assert!((1..=200).contains(&head.len()) && payload.len() <= 4096);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        prop_assert!(failed.is_none_or(|before| before == error));
                        failed = Some(error);
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn heads_that_mean_nothing_are_malformed_and_no_more(head in "\\PC{0,200}", payload in prop::collection::vec(any::<u8>(), 0..50)) {
        let frame = Frame { head: head.as_bytes(), payload: &payload };
        let _ = FromWorker::read(frame, |_| None);
        let _ = ToWorker::read(frame);
    }
}

#[test]
fn a_frame_in_pieces_takes_no_more_memory_than_it_may() {
    let limits = FrameLimits {
        head_bytes_max: 1000,
        payload_bytes_max: 100_000,
    };
    let mut wire = Vec::new();
    encode(&mut wire, limits, &"h".repeat(998), &[&vec![b'x'; 100_000]]).expect("it fits");
    assert_eq!(wire.len(), limits.frame_bytes_max());
    for size in [1, 7, 1000, 65_536, wire.len() - 1] {
        let mut frames = 0;
        let memory = allocation_counter::measure(|| {
            let mut decoder = FrameDecoder::new(limits);
            for mut input in wire.chunks(size) {
                while decoder.decode(&mut input).expect("a good frame").is_some() {
                    frames += 1;
                }
            }
        });
        assert_eq!(frames, 1, "{size}");
        // A growing buffer exists twice while it is copied.
        let most = 2 * limits.frame_bytes_max() as u64;
        assert!(memory.bytes_max <= most, "{size}: {memory:?}");
        assert!(memory.count_total < 30, "{size}: {memory:?}");
    }
    // A frame that is announced but never arrives takes no memory.
    let promise = &wire[..PREFIX_BYTES + 1];
    let memory = allocation_counter::measure(|| {
        let mut decoder = FrameDecoder::new(limits);
        let mut input = promise;
        assert_eq!(decoder.decode(&mut input), Ok(None));
        assert!(decoder.is_within_frame());
    });
    assert!(memory.bytes_max < 64, "{memory:?}");
}

#[test]
fn whole_frames_are_lent_as_they_lie_and_allocate_nothing() {
    let head = r#"{"type":"answer"}"#;
    let mut wire = Vec::new();
    for _ in 0..100 {
        encode(&mut wire, SMALL, &head, &[b"payload"]).expect("it is short");
    }
    let mut frames = 0;
    let memory = allocation_counter::measure(|| {
        let mut decoder = FrameDecoder::new(SMALL);
        let mut input = &wire[..];
        while let Ok(Some(frame)) = decoder.decode(&mut input) {
            assert!(wire.as_ptr_range().contains(&frame.payload.as_ptr()));
            frames += 1;
        }
    });
    assert_eq!((frames, memory.count_total), (100, 0));
}

#[test]
fn a_frame_that_is_too_long_is_not_written() {
    let mut wire = b"before".to_vec();
    let payload = vec![0; 4097];
    let error = FrameTooLong {
        head_bytes: 3,
        payload_bytes: 4097,
    };
    assert_eq!(encode(&mut wire, SMALL, &"h", &[&payload]), Err(error));
    let head = "h".repeat(199);
    let error = FrameTooLong {
        head_bytes: 201,
        payload_bytes: 0,
    };
    assert_eq!(encode(&mut wire, SMALL, &head, &[]), Err(error));
    assert_eq!(wire, b"before");
    assert_eq!(
        encode(&mut wire, SMALL, &&head[..198], &[&payload[..4096]]),
        Ok(())
    );
}

#[test]
fn a_broken_stream_stays_broken() {
    let mut decoder = FrameDecoder::new(SMALL);
    let error = FrameError::HeadTooLong {
        bytes: 201,
        max: 200,
    };
    assert_eq!(decoder.decode(&mut &[201, 0, 0][..]), Ok(None));
    assert_eq!(decoder.decode(&mut &[0][..]), Err(error));
    let good = stream(&[("a".to_owned(), Vec::new())]);
    assert_eq!(decoder.decode(&mut &good[..]), Err(error));
}
