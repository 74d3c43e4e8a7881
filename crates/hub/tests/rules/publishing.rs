//! Tests publish options (idempotency keys, versions, skipped history, deltas), and the credit of publications
//! from other workers.

use std::sync::Arc;

use veche_hub::{
    DeltaMode, FeedEvent, HubMessage, HubMessageClass, NamespaceOptions, Payload, PayloadKind,
    Publication, PublishOptions, PublishOutcome, RequestOutcome, Version,
};

use crate::node::{HOME, NEAR, Node, SOURCE, START_MS, namespaces};

const KEPT_MS: u64 = 5 * 60 * 1000;

fn keyed(key: &str) -> PublishOptions {
    PublishOptions {
        idempotency_key: Some(key.into()),
        ..PublishOptions::default()
    }
}

fn versioned(number: u64) -> PublishOptions {
    let epoch = "".into();
    PublishOptions {
        version: Some(Version { number, epoch }),
        ..PublishOptions::default()
    }
}

fn put(node: &mut Node, text: &str, channel: &str, terms: PublishOptions) -> PublishOutcome {
    match node.publish_with(text, channel, terms) {
        Ok(RequestOutcome::Done(published)) => published,
        other => panic!("{other:?}"),
    }
}

fn offset(published: PublishOutcome) -> Option<u64> {
    published.position.map(|position| position.offset)
}

/// Returns the expected reply to the repetition of a publication, given the reply to the first attempt.
fn skipped(first: PublishOutcome) -> PublishOutcome {
    assert!(!first.is_skipped);
    PublishOutcome {
        is_skipped: true,
        ..first
    }
}

#[test]
fn a_repeated_publication_gets_the_first_answer_and_is_delivered_once() {
    let mut node = Node::alone();
    node.subscribe(0, "kept:1");
    let first = put(&mut node, "a", "kept:1", keyed("k"));
    assert_eq!((first.receivers, offset(first)), (Some(1), Some(1)));
    node.subscribe(1, "kept:1");
    assert_eq!(put(&mut node, "a", "kept:1", keyed("k")), skipped(first));
    assert_eq!(node.texts(), ["a"]);
    assert_eq!(offset(put(&mut node, "b", "kept:1", keyed("l"))), Some(2));
    // A repetition in a channel without history is skipped, too.
    assert_eq!(put(&mut node, "a", "chat:1", keyed("k")).receivers, Some(0));
    node.subscribe(2, "chat:1");
    assert_eq!(put(&mut node, "a", "chat:1", keyed("k")).receivers, Some(0));
    node.at(START_MS + KEPT_MS - 1);
    assert_eq!(put(&mut node, "a", "chat:1", keyed("k")).receivers, Some(0));
    node.at(START_MS + KEPT_MS);
    assert_eq!(put(&mut node, "a", "chat:1", keyed("k")).receivers, Some(1));
}

#[test]
fn long_idempotency_keys_differ_by_their_last_byte() {
    let mut node = Node::alone();
    let key = |last: &str| keyed(&("k".repeat(1_000) + last));
    let first = put(&mut node, "a", "kept:1", key("1"));
    let second = put(&mut node, "b", "kept:1", key("2"));
    assert_eq!((offset(first), offset(second)), (Some(1), Some(2)));
    assert_eq!(put(&mut node, "a", "kept:1", key("1")), skipped(first));
    assert_eq!(put(&mut node, "b", "kept:1", key("2")), skipped(second));
}

#[test]
fn a_stale_publication_is_answered_with_the_current_position_and_not_delivered() {
    let mut node = Node::alone();
    node.subscribe(0, "kept:1");
    assert_eq!(offset(put(&mut node, "a", "kept:1", versioned(5))), Some(1));
    let stale = put(&mut node, "old", "kept:1", versioned(5));
    assert_eq!((stale.receivers, offset(stale)), (Some(0), Some(1)));
    assert!(stale.is_skipped);
    assert_eq!(offset(put(&mut node, "b", "kept:1", versioned(6))), Some(2));
    assert_eq!(node.texts(), ["a", "b"]);
    assert_eq!(node.hub.receivers_total(), 2);
}

#[test]
fn a_passing_publication_is_delivered_and_not_kept() {
    let mut node = Node::alone();
    node.subscribe(0, "kept:1");
    node.put("a", "kept:1");
    let passing = PublishOptions {
        skip_history: true,
        ..PublishOptions::default()
    };
    let published = put(&mut node, "now", "kept:1", passing);
    assert_eq!((published.receivers, published.position), (Some(1), None));
    assert_eq!(node.texts(), ["a", "now"]);
    let page = node.page("kept:1");
    assert_eq!((page.len(), page.position.offset), (1, 1));
}

#[test]
fn the_previous_payload_is_sent_as_namespace_and_terms_demand() {
    let asked = PublishOptions {
        use_delta: true,
        ..PublishOptions::default()
    };
    for (differences, terms, expected) in [
        (DeltaMode::Off, asked.clone(), [false, false]),
        (
            DeltaMode::OnRequest,
            PublishOptions::default(),
            [false, false],
        ),
        (DeltaMode::OnRequest, asked, [false, true]),
        (DeltaMode::Always, PublishOptions::default(), [false, true]),
    ] {
        let mut node = Node::home();
        let [channel] = node.names("kept");
        let mut all = namespaces();
        let kept = all.of("kept:1");
        let options = NamespaceOptions {
            delta_mode: differences,
            ..kept
        };
        all.insert("kept", options);
        node.hub.set_history(Arc::new(all), usize::MAX);
        node.subscribe_from(NEAR, &channel);
        node.outlet.credits[usize::from(NEAR.0)] = 2;
        node.outlet.sent.clear();
        for text in ["a", "b"] {
            put(&mut node, text, &channel, terms.clone());
        }
        let previous = node.outlet.sent.iter().map(|(_, mail)| match mail {
            HubMessage::Deliver { previous, .. } => {
                previous.as_ref().is_some_and(|one| one.bytes == "a")
            }
            other => panic!("{other:?}"),
        });
        let previous: Vec<_> = previous.collect();
        assert_eq!(previous, expected, "{differences:?} {terms:?}");
    }
}

#[test]
fn a_remote_publication_returns_its_credit_once() {
    let mut node = Node::home();
    let [chat, kept] = node.names("chat");
    node.subscribe(0, &chat);
    for channel in [&chat, &kept] {
        node.publish_from(SOURCE, "a", channel);
    }
    assert_eq!(node.outlet.done.len(), 2);
    assert!(node.outlet.done.iter().all(|(to, _)| *to == SOURCE));
    assert_eq!(node.texts(), ["a"]);
    assert_eq!(
        node.hub.gauges().entries,
        1,
        "a publication without subscribers leaves no entry"
    );
    assert_eq!(node.hub.worker(), HOME);
}

#[test]
fn a_remote_delivery_keeps_the_previous_payload_and_returns_its_credit() {
    let mut node = Node::home();
    let away = (0..).map(|number| format!("kept:{number}"));
    let away = away.into_iter().find(|channel| !node.is_home_of(channel));
    let away = away.expect("there are many");
    node.subscribe(0, &away);
    let Some((
        home,
        HubMessage::Subscribe {
            session,
            ticket,
            registration,
            ..
        },
    )) = node.outlet.sent.pop()
    else {
        panic!("a message to the home is expected");
    };
    node.receive(
        home,
        HubMessage::Subscribed {
            session,
            ticket,
            registration,
            joined: None,
        },
    );
    let payload = |text: &'static str| Payload {
        kind: PayloadKind::Text,
        bytes: text.into(),
    };
    let deliver = |channel: &str| HubMessage::Deliver {
        channel: Arc::from(channel),
        publication: Publication {
            payload: payload("b"),
            position: None,
            at_ms: START_MS,
            event: FeedEvent::Published,
            info: None,
        },
        previous: Some(payload("a")),
    };
    node.receive(home, deliver(&away));
    let given = &node.outlet.given[0];
    assert_eq!((&*given.text, given.previous.as_deref()), ("b", Some("a")));
    assert_eq!(node.outlet.done, [(home, HubMessageClass::Deliver)]);
    // The last subscriber has left, but the home has not processed its unsubscription yet. The
    // delivery only returns its credit.
    node.unsubscribe(0, &away);
    node.receive(home, deliver(&away));
    assert_eq!((node.outlet.given.len(), node.outlet.done.len()), (1, 2));
    assert_eq!(node.hub.gauges().entries, 0);
}
