//! Deliveries to subscribers of wildcard channels.

use veche_hub::{FeedEvent, HubMessage};

use crate::common::session;
use crate::node::{NEAR, Node, member};

#[test]
fn wildcard_subscribers_are_counted_and_get_no_position() {
    let mut node = Node::alone();
    node.subscribe(0, "news:*");
    let published = node.put("a", "news:1");
    assert_eq!(published.receivers, Some(1));
    assert_eq!(published.position.map(|position| position.offset), Some(1));
    node.subscribe(1, "news:1");
    assert_eq!(node.put("b", "news:1").receivers, Some(2));
    assert_eq!(node.hub.receivers_total(), 3);
    let given = node.outlet.given.iter();
    let given: Vec<_> = given
        .map(|one| {
            let offset = one.position.map(|position| position.offset);
            (
                one.session.index,
                &*one.channel,
                &*one.source,
                &*one.text,
                offset,
            )
        })
        .collect();
    let expected = [
        (0, "news:*", "news:1", "a", None),
        (0, "news:*", "news:1", "b", None),
        (1, "news:1", "news:1", "b", Some(2)),
    ];
    assert_eq!(given, expected);
}

#[test]
fn a_publication_to_the_wildcard_channel_is_delivered_once_and_not_kept() {
    let mut node = Node::alone();
    node.subscribe(0, "news:*");
    node.subscribe(1, "news:1");
    let published = node.put("a", "news:*");
    assert_eq!((published.receivers, published.position), (Some(1), None));
    assert_eq!(node.texts(), ["a"]);
    assert_eq!(node.hub.gauges().streams, 1);
}

#[test]
fn remote_wildcard_subscribers_are_served_by_mail() {
    let mut node = Node::home();
    node.subscribe_from(NEAR, "news:*");
    node.outlet.credits[usize::from(NEAR.0)] = 1;
    node.outlet.sent.clear();
    assert_eq!(node.put("a", "news:1").receivers, Some(1));
    let [
        (
            NEAR,
            HubMessage::Deliver {
                channel,
                publication,
                previous,
            },
        ),
    ] = &node.outlet.sent[..]
    else {
        panic!("{:?}", node.outlet.sent);
    };
    assert_eq!(
        (&**channel, publication.position, previous),
        ("news:*", None, &None)
    );
    assert_eq!(publication.event, FeedEvent::Published);
    let info = publication.info.as_ref().expect("it says where");
    assert_eq!(info.channel.as_deref(), Some("news:1"));
    assert!(node.publish("b", "news:1").is_err(), "there is no credit");
}

#[test]
fn joins_are_not_announced_to_wildcard_subscribers() {
    let mut node = Node::alone();
    node.subscribe(0, "news:*");
    node.join(session(1), "news:1", &member("ann", "a"));
    assert!(!node.sweep(100));
    assert!(node.outlet.given.is_empty());
}

#[test]
fn private_and_foreign_channels_are_not_delivered_to_wildcard_subscribers() {
    let mut node = Node::alone();
    node.subscribe(0, "news:*");
    for channel in ["news:$1", "news:1#ann", "chat:1", "news"] {
        assert_eq!(node.put("a", channel).receivers, Some(0), "{channel}");
    }
    assert_eq!(node.put("a", "news:2").receivers, Some(1));
}
