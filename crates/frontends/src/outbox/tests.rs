//! Tests of outboxes: limits, full outboxes, backlogs, positions and recovery.

use veche_hub::{Epoch, Payload, PayloadRef, Position, Publication, Recovered, SubscribeOutcome};

use super::*;

const ID: ConnectionId = ConnectionId {
    index: 2,
    generation: 5,
};

/// Creates outboxes with this limit in bytes, and one session.
fn outboxes(bytes_max: usize, delivery_mode: DeliveryMode) -> Outboxes {
    let mut all = Outboxes::new(bytes_max);
    all.open(ID);
    all.begin_session(ID, None, delivery_mode);
    all.release(ID);
    flush(&mut all);
    all
}

/// Takes the pending output of each connection, and what happens to its transport afterwards.
fn flush(all: &mut Outboxes) -> Vec<(ConnectionId, Vec<u8>, TransportEnd)> {
    let mut touched = Vec::new();
    all.take_touched(&mut touched);
    touched
        .into_iter()
        .filter_map(|index| all.take(index))
        .collect()
}

fn bytes(all: &mut Outboxes) -> Vec<u8> {
    let taken = flush(all);
    assert!(taken.iter().all(|(id, ..)| *id == ID));
    taken.into_iter().flat_map(|(_, bytes, _)| bytes).collect()
}

fn frame(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    websocket::encode_message(&mut out, MessageKind::Text, text.as_bytes(), None);
    out
}

#[derive(Clone, Copy)]
struct DeliveryOptions {
    event: FeedEvent,
    slow_miss: bool,
    offset: u64,
}

const PLAIN: DeliveryOptions = DeliveryOptions {
    event: FeedEvent::Published,
    slow_miss: false,
    offset: 0,
};

fn deliver(all: &mut Outboxes, channel: &str, text: &str, options: DeliveryOptions) {
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: text.as_bytes(),
    };
    deliver_payload(all, channel, payload, options);
}

fn deliver_payload(
    all: &mut Outboxes,
    channel: &str,
    payload: PayloadRef<'_>,
    options: DeliveryOptions,
) {
    let mut delivery = Delivery {
        channel,
        payload,
        position: (options.offset > 0).then_some(position(options.offset)),
        at_ms: 0,
        event: options.event,
        info: None,
        previous: None,
        encodings: &mut Encodings::default(),
        receivers: 1,
        drop_when_slow: options.slow_miss,
    };
    all.deliver(ID, &mut delivery);
}

fn position(offset: u64) -> Position {
    Position {
        epoch: Epoch::from_bits(9),
        offset,
    }
}

fn overflowed(all: &mut Outboxes) -> Vec<ConnectionId> {
    let mut into = Vec::new();
    all.take_overflowed(&mut into);
    into
}

fn fallen_behind(all: &mut Outboxes) -> Vec<ConnectionId> {
    let mut into = Vec::new();
    all.take_fallen_behind(&mut into);
    into
}

fn sent(all: &mut Outboxes) -> (u64, u64) {
    let SentCounts { messages, bytes } = all.take_sent();
    (messages, bytes)
}

#[test]
fn a_publication_over_the_budget_overflows_and_one_alone_never_does() {
    let mut all = outboxes(1_000, DeliveryMode::Reliable);
    deliver(&mut all, "a", &"x".repeat(5_000), PLAIN);
    assert_eq!(overflowed(&mut all), []);
    assert_eq!(bytes(&mut all), frame(&"x".repeat(5_000)));
    // 400 bytes are unsent, and the next message takes 102 with its header. A message of 498 bytes
    // still fits, since its header is not counted against the limit.
    all.set_unsent(ID, 400);
    deliver(&mut all, "a", &"y".repeat(100), PLAIN);
    assert_eq!(all.of(ID).queued(), 502);
    deliver(&mut all, "a", &"z".repeat(498), PLAIN);
    assert_eq!(
        (overflowed(&mut all), all.of(ID).queued()),
        (vec![], 502 + 502)
    );
    assert_eq!(sent(&mut all), (3, 5_598));
    deliver(&mut all, "a", "", PLAIN);
    assert_eq!(overflowed(&mut all), [ID]);
    // A session that has overflowed accepts nothing more, and is reported only once.
    deliver(&mut all, "a", "later", PLAIN);
    assert_eq!((overflowed(&mut all), sent(&mut all)), (vec![], (0, 0)));
    assert_eq!(
        all.send(ID, MessageKind::Text, b"later"),
        SendResult::Refused
    );
}

#[test]
fn slow_consumers_miss_publications_above_half_of_the_outbox() {
    let late = DeliveryOptions {
        slow_miss: true,
        ..PLAIN
    };
    for delivery_mode in [DeliveryMode::Reliable, DeliveryMode::WithPositions] {
        let mut all = outboxes(1_000, delivery_mode);
        // A message that is alone in the outbox is accepted, whatever its length.
        deliver(&mut all, "a", &"x".repeat(800), late);
        assert!(!bytes(&mut all).is_empty());
        all.set_unsent(ID, 400);
        deliver(&mut all, "a", &"y".repeat(100), late);
        assert_eq!(fallen_behind(&mut all), []);
        let queued = all.of(ID).queued();
        assert!(queued >= 502, "{queued}");
        for _ in 0..3 {
            deliver(&mut all, "a", "z", late);
        }
        assert_eq!(all.of(ID).queued(), queued, "misses the publications");
        assert_eq!(fallen_behind(&mut all), [ID], "reported once");
        assert_eq!(all.take_dropped().missed, 3);
        // A publication that must not be missed may use the whole outbox, not only half of it.
        deliver(&mut all, "a", "kept", PLAIN);
        assert!(all.of(ID).queued() > queued && overflowed(&mut all).is_empty());
        // After a client has received everything, its next missed publication is reported again.
        let mut left = bytes(&mut all).len();
        all.set_unsent(ID, 501);
        deliver(&mut all, "a", "z", late);
        assert_eq!(
            (fallen_behind(&mut all), all.take_dropped().missed),
            (vec![], 1)
        );
        all.set_unsent(ID, 0);
        deliver(&mut all, "a", "z", late);
        left += bytes(&mut all).len();
        assert!(left > 0);
        all.set_unsent(ID, 501);
        deliver(&mut all, "a", "z", late);
        assert_eq!(
            (fallen_behind(&mut all), all.take_dropped().missed),
            (vec![ID], 1)
        );
    }
    // With 400 bytes unsent, only 100 more fit into half of the limit, so the publication of 101 bytes is missed. A
    // join event is neither sent nor counted as missed, since the session has no push format.
    let mut all = outboxes(1_000, DeliveryMode::Reliable);
    all.set_unsent(ID, 400);
    deliver(&mut all, "a", &"y".repeat(101), late);
    assert_eq!(fallen_behind(&mut all), [ID]);
    let joined = DeliveryOptions {
        event: FeedEvent::Joined,
        ..late
    };
    deliver(&mut all, "a", &"y".repeat(900), joined);
    assert_eq!((all.of(ID).queued(), all.take_dropped().missed), (400, 1));
    // With the policy to keep the newest publications, the publication is queued in the backlog instead of missed.
    let mut all = outboxes(1_000, DeliveryMode::Lossy(DropPolicy::KeepNewest));
    all.set_unsent(ID, 400);
    deliver(&mut all, "a", &"y".repeat(300), late);
    assert_eq!(
        (fallen_behind(&mut all), all.take_dropped().missed),
        (vec![], 0)
    );
    assert!(all.backlog_bytes(ID) > 300);
}

#[test]
fn a_recovery_over_the_budget_is_omitted() {
    let publication = |offset: u64, length: usize| Publication {
        payload: Payload {
            kind: PayloadKind::Text,
            bytes: Bytes::from("x".repeat(length)),
        },
        position: Some(position(offset)),
        at_ms: 0,
        event: FeedEvent::Published,
        info: None,
    };
    let joined = |lengths: &[usize]| SubscribeOutcome {
        position: position(10),
        recovered: Some(Recovered {
            is_complete: true,
            publications: (8..)
                .zip(lengths)
                .map(|(at, length)| publication(at, *length))
                .collect(),
            is_latest_only: false,
            predecessor: 7,
        }),
    };
    let object = |offset: u64, length: usize| {
        let at = position(offset);
        format!(
            "{{\"channel\":\"c\",\"position\":\"{at}\",\"data\":\"{}\"}}",
            "x".repeat(length)
        )
    };
    // The limit is 1,000 bytes for publications, and 16 KiB more for the output before recovered publications.
    let wrapping = object(8, 0).len();
    let room = 1_000 + (16 << 10) - 2 * wrapping;
    for (lengths, unsent, is_recovered) in [
        ([5, 5], 0, true),
        ([room - 1_000, 1_000], 0, true),
        ([room - 999, 1_000], 0, false),
        ([room - 2_000, 1_000], 1_000, true),
        ([room - 2_000, 1_000], 1_001, false),
        ([100_000, 0], 0, false),
    ] {
        let mut all = outboxes(1_000, DeliveryMode::WithPositions);
        all.set_unsent(ID, unsent);
        assert_eq!(
            all.write_joined(ID, "c", &joined(&lengths)),
            is_recovered,
            "{lengths:?}"
        );
        let at = position(if is_recovered { 7 } else { 10 });
        let mut expected = frame(&format!(
            "{{\"subscribed\":\"c\",\"position\":\"{at}\",\"recovered\":{is_recovered}}}"
        ));
        if is_recovered {
            expected.extend(frame(&object(8, lengths[0])));
            expected.extend(frame(&object(9, lengths[1])));
        }
        assert_eq!(bytes(&mut all), expected, "{lengths:?}");
        assert_eq!(overflowed(&mut all), []);
    }
    // Three cases: the recovery is complete; it is incomplete; no recovery was requested.
    let mut all = outboxes(1_000, DeliveryMode::WithPositions);
    assert!(all.write_joined(ID, "c", &joined(&[])));
    let mut missing = joined(&[]);
    if let Some(recovered) = &mut missing.recovered {
        recovered.is_complete = false;
    }
    assert!(!all.write_joined(ID, "c", &missing));
    let fresh = SubscribeOutcome {
        recovered: None,
        ..missing
    };
    assert!(!all.write_joined(ID, "c", &fresh));
    all.write_unsubscribed(ID, "c\"");
    let at = position(10);
    let expected = [
        format!("{{\"subscribed\":\"c\",\"position\":\"{at}\",\"recovered\":true}}"),
        format!("{{\"subscribed\":\"c\",\"position\":\"{at}\",\"recovered\":false}}"),
        format!("{{\"subscribed\":\"c\",\"position\":\"{at}\"}}"),
        "{\"unsubscribed\":\"c\\\"\"}".to_owned(),
    ];
    let expected: Vec<u8> = expected.iter().flat_map(|text| frame(text)).collect();
    assert_eq!(bytes(&mut all), expected);
    // Sessions in other modes receive no positions and no recovered publications.
    let mut all = outboxes(1_000, DeliveryMode::Reliable);
    assert!(!all.write_joined(ID, "c", &joined(&[5])));
    assert_eq!(bytes(&mut all), b"");
}

#[test]
fn publications_with_places_are_objects() {
    let mut all = outboxes(1_000, DeliveryMode::WithPositions);
    let placed = DeliveryOptions { offset: 3, ..PLAIN };
    deliver(&mut all, "c", "t", placed);
    deliver(&mut all, "c", "t", PLAIN);
    let payload = |kind, bytes| PayloadRef { kind, bytes };
    deliver_payload(
        &mut all,
        "c",
        payload(PayloadKind::Binary, &[0, 255]),
        PLAIN,
    );
    deliver_payload(&mut all, "c", payload(PayloadKind::Json, b"{}"), PLAIN);
    let expected = [
        format!(
            "{{\"channel\":\"c\",\"position\":\"{}\",\"data\":\"t\"}}",
            position(3)
        ),
        "{\"channel\":\"c\",\"data\":\"t\"}".to_owned(),
        "{\"channel\":\"c\",\"base64\":\"AP8=\"}".to_owned(),
        "{\"channel\":\"c\",\"data\":{}}".to_owned(),
    ];
    let lengths: usize = expected.iter().map(String::len).sum();
    assert_eq!(sent(&mut all), (4, lengths as u64));
    let expected: Vec<u8> = expected.iter().flat_map(|text| frame(text)).collect();
    assert_eq!(bytes(&mut all), expected);
}

#[test]
fn applications_learn_that_the_outbox_is_full_and_has_room_again() {
    // The outbox is full above 500 bytes, and has room again at 125 bytes.
    let mut all = outboxes(1_000, DeliveryMode::Reliable);
    let mut drained = Vec::new();
    assert_eq!(
        all.send(ID, MessageKind::Text, &[b'x'; 498 - 4]),
        SendResult::Room
    );
    assert_eq!(all.of(ID).queued(), 498);
    assert_eq!(all.send(ID, MessageKind::Text, b""), SendResult::Room);
    assert_eq!(all.send(ID, MessageKind::Text, b""), SendResult::Full);
    assert_eq!(all.send(ID, MessageKind::Text, b""), SendResult::Full);
    all.settle_filled();
    assert!(
        !all.has_drained(),
        "the client has not received anything yet"
    );
    assert_eq!(bytes(&mut all).len(), 504);
    all.set_unsent(ID, 126);
    assert!(!all.has_drained());
    all.set_unsent(ID, 125);
    assert!(all.has_drained());
    all.set_unsent(ID, 0);
    all.take_drained(&mut drained);
    assert_eq!((drained.as_slice(), all.has_drained()), (&[ID][..], false));
    // If the flush empties a full outbox, `settle_filled` reports that the outbox has room again.
    assert_eq!(
        all.send(ID, MessageKind::Text, &[b'x'; 900]),
        SendResult::Full
    );
    bytes(&mut all);
    assert!(!all.has_drained());
    all.settle_filled();
    assert!(all.has_drained());
    // A message that exceeds the limit is refused, and the session is marked as overflowed.
    all.set_unsent(ID, 900);
    assert_eq!(
        all.send(ID, MessageKind::Text, &[b'x'; 101]),
        SendResult::Refused
    );
    assert_eq!(overflowed(&mut all), [ID]);
    assert_eq!(all.send(ID, MessageKind::Text, b""), SendResult::Refused);
    // A message that is alone in the outbox is accepted whatever its length, and so is one that reaches the limit
    // exactly.
    let mut all = outboxes(1_000, DeliveryMode::Reliable);
    assert_eq!(
        all.send(ID, MessageKind::Text, &[b'x'; 2_000]),
        SendResult::Full
    );
    bytes(&mut all);
    all.set_unsent(ID, 900);
    assert_eq!(
        all.send(ID, MessageKind::Binary, &[b'x'; 100]),
        SendResult::Full
    );
    assert_eq!((overflowed(&mut all), sent(&mut all)), (vec![], (2, 2_100)));
    let gone = ConnectionId {
        generation: 6,
        ..ID
    };
    assert_eq!(all.send(gone, MessageKind::Text, b""), SendResult::Refused);
    let mut disabled = outboxes(1_000, DeliveryMode::Disabled);
    assert_eq!(
        disabled.send(ID, MessageKind::Text, b""),
        SendResult::Refused
    );
}

#[test]
fn connections_of_applications_have_a_mark_of_their_own() {
    let mut all = Outboxes::new(1_000).with_random(|bytes| bytes.fill(0));
    all.open(ID);
    all.begin_client(ID, None);
    assert_eq!(
        all.send(ID, MessageKind::Text, &[b'x'; 900_000]),
        SendResult::Room
    );
    // The frame's header has 14 bytes, including the masking key.
    assert_eq!(all.of(ID).queued(), 900_014);
    let room = (1 << 20) - 900_014;
    assert_eq!(
        all.send(ID, MessageKind::Text, &vec![b'x'; room - 14]),
        SendResult::Room
    );
    assert_eq!(all.send(ID, MessageKind::Text, b""), SendResult::Full);
    bytes(&mut all);
    all.set_unsent(ID, (1 << 18) + 1);
    assert!(!all.has_drained());
    all.set_unsent(ID, 1 << 18);
    assert!(all.has_drained() && overflowed(&mut all).is_empty());
}

#[test]
fn what_waits_is_written_in_order_and_its_bytes_are_counted() {
    let overhead = size_of_waiting();
    let mut all = outboxes(10_000, DeliveryMode::Lossy(DropPolicy::KeepNewest));
    // While nothing is unsent, messages are written immediately, until the output of the turn reaches half of the
    // limit.
    deliver(&mut all, "a", &"0".repeat(100), PLAIN);
    assert_eq!(all.backlog_bytes(ID), 0);
    deliver(&mut all, "a", &"1".repeat(4_898), PLAIN);
    assert_eq!(all.backlog_bytes(ID), 0, "5,000 in all");
    deliver(&mut all, "a", "2", PLAIN);
    assert_eq!(all.backlog_bytes(ID), 3 + overhead);
    assert_eq!(all.send(ID, MessageKind::Text, b"3"), SendResult::Full);
    deliver(&mut all, "a", "4", PLAIN);
    assert_eq!(all.backlog_bytes(ID), 7 + 3 * overhead);
    let mut first = frame(&"0".repeat(100));
    first.extend(frame(&"1".repeat(4_898)));
    assert_eq!(bytes(&mut all), first);
    assert_eq!(sent(&mut all), (2, 4_998));
    assert!(all.settle_backlogs());
    assert_eq!(
        bytes(&mut all),
        [frame("2"), frame("3"), frame("4")].concat()
    );
    assert_eq!((sent(&mut all), all.backlog_bytes(ID)), ((3, 3), 0));
    assert!(!all.settle_backlogs());
    assert_eq!(all.take_dropped(), Dropped::default());
}

fn size_of_waiting() -> usize {
    let mut all = outboxes(10_000, DeliveryMode::Lossy(DropPolicy::KeepNewest));
    all.set_unsent(ID, 1);
    deliver(&mut all, "a", "", PLAIN);
    let bytes = all.backlog_bytes(ID) - 2;
    assert!((16..200).contains(&bytes), "{bytes}");
    bytes
}

#[test]
fn the_oldest_go_until_the_newest_has_room_and_the_application_s_never() {
    let each = 102 + size_of_waiting();
    let mut all = outboxes(100 + 5 * each, DeliveryMode::Lossy(DropPolicy::KeepNewest));
    all.set_unsent(ID, 100);
    let text = |number: u32| format!("{number:<100}");
    for number in 0..5 {
        deliver(&mut all, "a", &text(number), PLAIN);
    }
    assert_eq!(
        (all.take_dropped().oldest, all.backlog_bytes(ID)),
        (0, 5 * each)
    );
    assert_eq!(
        all.send(ID, MessageKind::Text, text(9).as_bytes()),
        SendResult::Full
    );
    // A message of an application is queued without its frame header, which would be 2 bytes.
    assert_eq!(
        (all.take_dropped().oldest, all.backlog_bytes(ID)),
        (1, 5 * each - 2)
    );
    deliver(&mut all, "a", &text(5), PLAIN);
    deliver(&mut all, "a", &text(6), PLAIN);
    assert_eq!(all.take_dropped().oldest, 2);
    // The transport takes everything, so the backlog is written in the following turns.
    all.set_unsent(ID, 1);
    assert_eq!(bytes(&mut all), b"");
    all.set_unsent(ID, 0);
    let expected = [3, 4, 9, 5, 6].map(|number| frame(&text(number))).concat();
    let mut written = Vec::new();
    for _ in 0..10 {
        written.extend(bytes(&mut all));
        all.settle_backlogs();
    }
    assert_eq!(written, expected);
    // An application's message that does not fit into the outbox is refused, and the session is marked as
    // overflowed.
    all.set_unsent(ID, 100);
    let mut promised = 0;
    while all.send(ID, MessageKind::Text, text(7).as_bytes()) != SendResult::Refused {
        promised += 1;
        deliver(&mut all, "a", "", PLAIN);
    }
    assert!((4..=5).contains(&promised), "{promised}");
    assert_eq!((overflowed(&mut all), all.backlog_bytes(ID)), (vec![ID], 0));
}

#[test]
fn of_a_channel_only_the_latest_waits() {
    let mut all = outboxes(
        10_000,
        DeliveryMode::Lossy(DropPolicy::KeepLatestPerChannel),
    );
    all.set_unsent(ID, 1);
    for (channel, text) in [("a", "0"), ("b", "1"), ("a", "2"), ("b", "3"), ("a", "4")] {
        deliver(&mut all, channel, text, PLAIN);
    }
    assert_eq!(all.backlog_bytes(ID), 6 + 2 * size_of_waiting());
    let dropped = all.take_dropped();
    assert_eq!(
        (dropped.replaced, dropped.oldest, dropped.missed),
        (3, 0, 0)
    );
    // A Close frame is written after the backlog.
    all.close_frame(ID, Some(1000), "");
    let mut expected = [frame("3"), frame("4")].concat();
    websocket::encode_close(&mut expected, Some(1000), "", None);
    assert_eq!(bytes(&mut all), expected);
}

#[test]
fn an_outbox_is_taken_once_a_turn_and_nothing_outlives_its_connection() {
    let mut all = Outboxes::new(1_000);
    all.open(ID);
    all.begin_session(ID, None, DeliveryMode::Reliable);
    all.buffer(ID).extend_from_slice(b"101");
    assert_eq!(
        flush(&mut all),
        [],
        "output is held back until the session is registered"
    );
    all.release(ID);
    all.buffer(ID).extend_from_slice(b" and more");
    assert_eq!(
        flush(&mut all),
        [(ID, b"101 and more".to_vec(), TransportEnd::Open)]
    );
    assert_eq!(flush(&mut all), []);
    // When a handshake is refused, output that was written before it is kept.
    all.buffer(ID).extend_from_slice(b"kept");
    all.begin_session(ID, None, DeliveryMode::Reliable);
    deliver(&mut all, "a", "not kept", PLAIN);
    all.discard_unsent(ID, 4);
    deliver(&mut all, "a", "refused", PLAIN);
    assert_eq!(
        flush(&mut all),
        [(ID, b"kept".to_vec(), TransportEnd::Open)]
    );
    // The end of the transport is returned together with the last bytes. An abort takes precedence over a shutdown
    // and drops what is queued.
    all.buffer(ID).extend_from_slice(b"bye");
    all.finish(ID, TransportEnd::Shutdown);
    assert!(!all.of(ID).is_over());
    assert_eq!(
        flush(&mut all),
        [(ID, b"bye".to_vec(), TransportEnd::Shutdown)]
    );
    assert!(all.of(ID).is_over());
    all.set_unsent(ID, 1);
    assert!(!all.of(ID).is_over());
    all.set_unsent(ID, 0);
    all.begin_session(ID, None, DeliveryMode::Reliable);
    assert!(!all.of(ID).is_over());
    all.finish(ID, TransportEnd::Abort);
    all.finish(ID, TransportEnd::Shutdown);
    assert_eq!(flush(&mut all), [(ID, Vec::new(), TransportEnd::Abort)]);
    all.release(ID);
    all.buffer(ID).extend_from_slice(b"lost");
    all.close(ID);
    deliver(&mut all, "a", "lost", PLAIN);
    all.set_unsent(ID, 7);
    let next = ConnectionId {
        generation: 6,
        ..ID
    };
    all.open(next);
    all.buffer(next).extend_from_slice(b"next");
    assert_eq!(
        flush(&mut all),
        [(next, b"next".to_vec(), TransportEnd::Open)]
    );
    assert_eq!((all.of(next).queued(), all.of(next).messaged_ms()), (0, 0));
    all.set_now_ms(u64::from(u32::MAX) + 8);
    all.begin_session(next, None, DeliveryMode::Reliable);
    assert_eq!(all.of(next).messaged_ms(), 7);
}

/// Tests generation 0, which the first connection of each index has, and a later generation.
#[test]
fn a_closed_outbox_accepts_nothing() {
    for generation in [0, 5] {
        let id = ConnectionId { generation, ..ID };
        let mut all = Outboxes::new(1_000);
        all.open(id);
        all.begin_session(id, None, DeliveryMode::Reliable);
        all.release(id);
        assert_eq!(all.send(id, MessageKind::Text, b"a"), SendResult::Room);
        flush(&mut all);
        all.close(id);
        assert_eq!(all.send(id, MessageKind::Text, b"b"), SendResult::Refused);
        all.set_unsent(id, 7);
        assert_eq!(flush(&mut all), []);
        assert_eq!(all.queue_lengths().count(), 0, "{generation}");
    }
}

#[test]
fn events_are_text_and_chunks_where_the_response_is() {
    for (is_chunked, expected) in [
        (false, "data: t\n\n".to_owned()),
        (true, "9\r\ndata: t\n\n\r\n".to_owned()),
    ] {
        let mut all = Outboxes::new(1_000);
        all.open(ID);
        all.begin_events(ID, is_chunked);
        deliver(&mut all, "a", "t", PLAIN);
        let binary = PayloadRef {
            kind: PayloadKind::Binary,
            bytes: b"b",
        };
        deliver_payload(&mut all, "a", binary, PLAIN);
        let left = DeliveryOptions {
            event: FeedEvent::Left,
            ..PLAIN
        };
        deliver(&mut all, "a", "t", left);
        assert_eq!(String::from_utf8(bytes(&mut all)).expect("UTF-8"), expected);
        assert_eq!(sent(&mut all), (1, 1));
        assert_eq!(all.send(ID, MessageKind::Text, b"t"), SendResult::Refused);
    }
}

#[test]
fn the_budget_is_the_one_set_last() {
    let mut all = outboxes(1_000, DeliveryMode::Reliable);
    all.set_unsent(ID, 500);
    all.set_outbox_bytes_max(2_000);
    deliver(&mut all, "a", &"x".repeat(1_000), PLAIN);
    assert_eq!(overflowed(&mut all), []);
    all.set_outbox_bytes_max(400);
    deliver(&mut all, "a", "x", PLAIN);
    assert_eq!(overflowed(&mut all), [ID]);
}
