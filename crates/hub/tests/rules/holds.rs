//! Tests homes whose log is full, and the publications that other workers send to them.

use veche_hub::{HubMessage, HubMessageClass, NoCredit, RequestOutcome, WorkerId};

use crate::node::{FAR, NEAR, Node, SOURCE};

/// The values of these constants are those in `src/pending.rs` and `src/log_backpressure.rs`.
const PENDING_MAX: u32 = 8192;
const WITHOUT_CREDIT_MAX: usize = 1024;

/// Returns worker 0 of four with a full log, and a channel with history whose home it is.
fn full() -> (Node, String) {
    let mut node = Node::home();
    node.hub.enable_log();
    let [kept] = node.names("kept");
    for _ in 0..PENDING_MAX {
        assert_eq!(node.publish("", &kept), Ok(RequestOutcome::Pending));
    }
    assert_eq!(node.publish("", &kept), Err(NoCredit));
    (node, kept)
}

/// Returns the messages about a full log since the last call: the receiving worker, and whether the log is full.
fn log_states(node: &mut Node) -> Vec<(u16, bool)> {
    let sent = std::mem::take(&mut node.outlet.sent);
    let states = sent.into_iter().filter_map(|(to, mail)| match mail {
        HubMessage::LogFull { is_full } => Some((to.0, is_full)),
        _ => None,
    });
    states.collect()
}

#[test]
fn publications_that_wait_for_the_log_do_not_keep_the_lane() {
    let (mut node, kept) = full();
    node.publish_from(SOURCE, "a", &kept);
    node.publish_from(SOURCE, "b", &kept);
    assert_eq!(node.hub.gauges().stalled, 2);
    assert_eq!(node.outlet.done, [(SOURCE, HubMessageClass::Publish); 2]);
    let others = [NEAR, FAR, SOURCE].map(|WorkerId(other)| other);
    assert_eq!(log_states(&mut node), others.map(|other| (other, true)));
    // Publications to channels without history are not held back.
    let [chat] = node.names("chat");
    node.subscribe(0, &chat);
    node.publish_from(SOURCE, "c", &chat);
    assert_eq!(node.texts(), ["c"]);
    assert_eq!(node.outlet.done.len(), 3);

    node.write_log();
    assert_eq!(node.hub.gauges().stalled, 0);
    assert_eq!(log_states(&mut node), others.map(|other| (other, false)));
    node.write_log();
    assert_eq!(node.page(&kept).position.offset, u64::from(PENDING_MAX) + 2);
    // The credits of the stalled publications were returned before and are not returned again.
    assert_eq!(node.outlet.done.len(), 3);
    node.publish_from(SOURCE, "d", &kept);
    assert_eq!(node.outlet.done.len(), 4);
    assert_eq!(log_states(&mut node), []);
}

#[test]
fn stalled_publications_without_credit_are_limited() {
    let (mut node, kept) = full();
    for _ in 0..WITHOUT_CREDIT_MAX + 10 {
        node.publish_from(SOURCE, "a", &kept);
    }
    assert_eq!(node.outlet.done.len(), WITHOUT_CREDIT_MAX);
    // The limit applies to each sending worker separately.
    node.publish_from(FAR, "b", &kept);
    assert_eq!(
        node.outlet.done.last(),
        Some(&(FAR, HubMessageClass::Publish))
    );
    node.write_log();
    assert_eq!(node.hub.gauges().stalled, 0);
    assert_eq!(node.outlet.done.len(), WITHOUT_CREDIT_MAX + 11);
}

#[test]
fn publications_for_a_full_log_wait_at_the_publisher() {
    let mut node = Node::home();
    let far = |namespace: &str| {
        let mut names = (0..).map(|number| format!("{namespace}:{number}"));
        let is_far = |name: &String| node.hub.home_of(crate::common::name(name)) == FAR;
        names.find(is_far).expect("every fourth")
    };
    let (kept, chat) = (far("kept"), far("chat"));
    node.outlet.credits[usize::from(FAR.0)] = 9;
    assert_eq!(node.publish("a", &kept), Ok(RequestOutcome::Pending));
    node.receive(FAR, HubMessage::LogFull { is_full: true });
    assert_eq!(node.publish("b", &kept), Err(NoCredit));
    assert_eq!(node.publish("b", &chat), Ok(RequestOutcome::Pending));
    node.receive(FAR, HubMessage::LogFull { is_full: false });
    assert_eq!(node.publish("b", &kept), Ok(RequestOutcome::Pending));
}
