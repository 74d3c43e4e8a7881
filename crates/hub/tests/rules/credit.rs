//! Tests that publications without credit do not delay other channels, and that they reserve the lanes that
//! they need.

use veche_hub::{NoCredit, Options, RequestOutcome};

use crate::node::{FAR, NEAR, Node, SOURCE};

const TAKEN_BY_ONE: Result<RequestOutcome<u32>, NoCredit> = Ok(RequestOutcome::Done(1));

fn handed(node: &mut Node, text: &str, channel: &str) -> Result<RequestOutcome<u32>, NoCredit> {
    Ok(match node.publish(text, channel)? {
        RequestOutcome::Done(published) => {
            RequestOutcome::Done(published.receivers.unwrap_or_default())
        }
        RequestOutcome::Pending => RequestOutcome::Pending,
    })
}

#[test]
fn a_publication_without_credit_holds_up_no_other_channel() {
    let mut node = Node::home();
    let [far, near] = node.names("chat");
    node.subscribe_from(FAR, &far);
    node.subscribe_from(NEAR, &near);
    node.publish_from(SOURCE, "far", &far);
    node.publish_from(SOURCE, "near", &near);
    assert_eq!(node.hub.gauges().stalled, 2);
    node.outlet.credits[usize::from(NEAR.0)] = 1;
    node.hub.sweep(0, &mut node.outlet);
    assert_eq!(node.outlet.delivered, ["near to 1"]);
    assert_eq!(node.hub.gauges().stalled, 1);
    // The blocked publication is still queued, and is delivered once.
    node.outlet.credits[usize::from(FAR.0)] = 9;
    node.hub.sweep(0, &mut node.outlet);
    assert_eq!(node.outlet.delivered, ["near to 1", "far to 2"]);
    assert_eq!(node.hub.gauges().stalled, 0);
}

#[test]
fn a_publication_retried_in_vain_keeps_its_lanes_reserved() {
    let mut node = Node::home();
    let [both, near] = node.names("chat");
    node.subscribe_from(FAR, &both);
    node.subscribe_from(NEAR, &both);
    node.subscribe_from(NEAR, &near);
    node.publish_from(SOURCE, "first", &both);
    node.outlet.credits[usize::from(NEAR.0)] = 1;
    node.hub.sweep(0, &mut node.outlet);
    assert_eq!(handed(&mut node, "thief", &near), Err(NoCredit));
    node.outlet.credits[usize::from(FAR.0)] = 1;
    node.hub.sweep(0, &mut node.outlet);
    node.outlet.credits[usize::from(NEAR.0)] = 1;
    assert_eq!(handed(&mut node, "honest", &near), TAKEN_BY_ONE);
    let delivered = ["first to 1", "first to 2", "honest to 1"];
    let mut sorted = node.outlet.delivered.clone();
    sorted[..2].sort();
    assert_eq!(sorted, delivered);
}

#[test]
fn lanes_of_wildcard_subscribers_are_reserved() {
    let mut node = Node::home();
    let [near] = node.names("chat");
    node.subscribe_from(FAR, "news:1");
    node.subscribe_from(NEAR, "news:*");
    node.subscribe_from(NEAR, &near);
    node.outlet.credits[usize::from(NEAR.0)] = 1;
    node.publish_from(SOURCE, "both", "news:1");
    assert_eq!(handed(&mut node, "thief", &near), Err(NoCredit));
    node.outlet.credits[usize::from(FAR.0)] = 1;
    node.hub.sweep(0, &mut node.outlet);
    node.outlet.delivered.sort();
    assert_eq!(node.outlet.delivered, ["both to 1", "both to 2"]);
}

#[test]
fn a_full_queue_reserves_no_lane() {
    let options = Options {
        channel_queue_publications_max: 1,
        ..Options::default()
    };
    let mut node = Node::home_with(options);
    let [crowded, near] = node.names("chat");
    for index in 0..20 {
        node.subscribe(index, &crowded);
    }
    node.subscribe_from(NEAR, &crowded);
    node.subscribe_from(NEAR, &near);
    node.outlet.credits[usize::from(NEAR.0)] = 9;
    node.publish_from(SOURCE, "queued", &crowded);
    node.publish_from(SOURCE, "stalled", &crowded);
    let counts = node.hub.gauges();
    assert_eq!((counts.queued, counts.stalled), (1, 1));
    assert_eq!(handed(&mut node, "free", &near), TAKEN_BY_ONE);
    assert_eq!(node.outlet.delivered, ["queued to 1", "free to 1"]);
}

#[test]
fn durable_publications_without_credit_block_no_other_channel_and_reserve_their_lanes() {
    let mut node = Node::home();
    node.hub.enable_log();
    let [both, near] = node.names("kept");
    let [chat] = node.names("chat");
    node.subscribe_from(FAR, &both);
    node.subscribe_from(NEAR, &both);
    node.subscribe_from(NEAR, &near);
    node.subscribe_from(NEAR, &chat);
    node.outlet.credits = [9; 4];
    for (text, channel) in [("a", &both), ("b", &near)] {
        assert_eq!(node.publish(text, channel), Ok(RequestOutcome::Pending));
    }
    // When the batch becomes durable, no lane has a credit.
    node.outlet.credits = [0; 4];
    node.write_log();
    let counts = node.hub.gauges();
    assert_eq!((counts.stalled, counts.pending), (2, 2));
    assert!(node.outlet.delivered.is_empty());

    // The first publication needs credits of two lanes. Only one lane has a credit, which stays reserved for this
    // publication.
    node.outlet.credits[usize::from(NEAR.0)] = 1;
    node.hub.sweep(0, &mut node.outlet);
    assert!(node.outlet.delivered.is_empty());
    assert_eq!(handed(&mut node, "thief", &chat), Err(NoCredit));
    node.outlet.credits[usize::from(FAR.0)] = 1;
    node.hub.sweep(0, &mut node.outlet);
    node.outlet.delivered.sort();
    assert_eq!(node.outlet.delivered, ["a to 1", "a to 2"]);
    assert_eq!(node.hub.gauges().stalled, 1);

    // Later publications that do not need the blocked lane continue.
    node.outlet.credits = [9; 4];
    node.hub.sweep(0, &mut node.outlet);
    let [far_only] = {
        let [_, _, third] = node.names("kept");
        [third]
    };
    node.subscribe_from(FAR, &far_only);
    for (text, channel) in [("c", &far_only), ("d", &near)] {
        assert_eq!(node.publish(text, channel), Ok(RequestOutcome::Pending));
    }
    node.outlet.credits = [0; 4];
    node.outlet.delivered.clear();
    node.write_log();
    node.outlet.credits[usize::from(NEAR.0)] = 1;
    node.hub.sweep(0, &mut node.outlet);
    assert_eq!(node.outlet.delivered, ["d to 1"]);
}

#[test]
fn gauges_count_publications_waiting_for_the_log_and_for_credit() {
    let mut node = Node::home();
    node.hub.enable_log();
    let [far, here] = node.names("kept");
    let [chat] = node.names("chat");
    node.subscribe_from(FAR, &far);
    node.subscribe_from(FAR, &chat);
    node.outlet.credits = [9; 4];
    assert_eq!(node.publish("a", &far), Ok(RequestOutcome::Pending));
    assert_eq!(node.publish("b", &far), Ok(RequestOutcome::Pending));
    node.outlet.credits = [0; 4];
    node.write_log();
    node.publish_from(SOURCE, "c", &chat);
    for _ in 0..3 {
        assert_eq!(node.publish("d", &here), Ok(RequestOutcome::Pending));
    }
    let counts = node.hub.gauges();
    assert_eq!((counts.stalled, counts.pending), (3, 5));
}
