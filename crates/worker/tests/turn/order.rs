//! The order of a turn's steps, and the order in which waiting connections are resumed.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use veche_frontends::{EmulationAddress, EmulationRequest, ListConnections, ShutdownReason};
use veche_hub::{
    Caller, ChannelName, ConnectionId, HistoryOptions, HubMessage, NamespaceOptions, Namespaces,
    Payload, PayloadKind, PayloadRef, RecoveryMode, RequestOutcome, SubscribeOptions, Ticket,
    WorkerId,
};
use veche_worker::{APP_CREDITS, OutgoingMail, TurnState, Worker, WorkerMessage};

use crate::app::{APP, Numbers};
use crate::world::wire::handshake;
use crate::world::{Options, PUSH};
use crate::{accept, end_turn, id, posted, turn, worker};

type Tested = Worker<Numbers, &'static str>;

/// The number of credits of a lane.
const CREDITS: u32 = 1024;
/// The number of a lane's credits that publications may use.
const PUBLISH_CREDITS: u32 = CREDITS / 2;

/// Returns the name of a channel whose home worker is `home`, one of three workers.
fn channel_of(worker: &Tested, home: u16) -> String {
    let hub = &worker.shared().hub;
    let mut names = (0..).map(|number| format!("channel-{number}"));
    let is_there = |name: &String| {
        let name = ChannelName::new(name).expect("a valid name");
        hub.home_of(name) == WorkerId(home)
    };
    names.find(is_there).expect("there are enough")
}

fn name(text: &str) -> ChannelName<'_> {
    ChannelName::new(text).expect("a valid name")
}

fn push_lines(worker: &mut Tested, index: u32) -> ConnectionId {
    let id = id(index, 1);
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    worker.handle_accepted(id, PUSH, peer, "beside it");
    id
}

/// Runs a turn. Returns the publications that it sent to other workers.
fn published(worker: &mut Tested) -> Vec<String> {
    worker.finish_turn();
    while worker.poll_write().is_some() {}
    let messages = std::iter::from_fn(|| worker.poll_message());
    let texts = messages.filter_map(|outgoing| match outgoing.message {
        WorkerMessage::Hub(HubMessage::Publish { payload, .. }) => Some(payload),
        WorkerMessage::Hub(HubMessage::Deliver { publication, .. }) => Some(publication.payload),
        _ => None,
    });
    let texts = texts
        .map(|payload| String::from_utf8_lossy(&payload.bytes).into_owned())
        .collect();
    end_turn(worker);
    texts
}

#[test]
fn connections_that_wait_for_the_same_credit_take_turns() {
    let mut worker = worker();
    let channel = channel_of(&worker, 1);
    worker.handle_credits(1, PUBLISH_CREDITS);
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        let id = push_lines(&mut worker, index as u32);
        let lines: String = (0..3)
            .map(|number| format!("{{\"channel\":\"{channel}\",\"data\":\"{name}{number}\"}}\n"))
            .collect();
        worker.handle_received(id, &mut lines.into_bytes());
    }
    let mut order = Vec::new();
    for _ in 0..9 {
        worker.handle_credits(1, PUBLISH_CREDITS - 1);
        order.extend(published(&mut worker));
    }
    let expected = ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"];
    assert_eq!(order, expected);
    assert!(worker.shared().waiting_for_credit.is_empty());
}

/// Adds a subscriber on worker `from` to the hub of `worker`.
fn subscribe_from(worker: &mut Tested, from: usize, channel: &str) {
    let options = Options {
        workers: 3,
        ..Options::default()
    };
    let mut there = options.shared(WorkerId(from as u16));
    let subscribe_options = SubscribeOptions::default();
    let (session, ticket) = (id(0, 1), Ticket(0));
    let outcome = there.hub.subscribe(
        session,
        name(channel),
        ticket,
        &subscribe_options,
        &mut there.requests,
    );
    assert!(outcome.is_ok());
    for lane in &mut there.requests.mailer.lanes {
        while let Some(mail) = lane.outgoing.pop_front() {
            worker.handle_message(from, WorkerMessage::Hub(mail));
        }
    }
    while worker.poll_message().is_some() {}
}

#[test]
fn what_a_sweep_lets_go_on_is_answered_in_the_same_turn() {
    let mut worker = worker();
    let channel = channel_of(&worker, 0);
    let mut namespaces = Namespaces::new();
    let kept = NamespaceOptions {
        history: Some(HistoryOptions {
            size: 10,
            ttl_ms: 60_000,
            position_ttl_ms: 60_000,
            recovery: RecoveryMode::Missed,
            budget: veche_hub::Budget::COMMON,
        }),
        ..NamespaceOptions::default()
    };
    namespaces.insert("", kept);
    worker.shared_mut().hub.enable_log();
    worker
        .shared_mut()
        .hub
        .set_history(Arc::new(namespaces), 1 << 20);
    subscribe_from(&mut worker, 1, &channel);
    let shared = worker.shared_mut();
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: b"kept",
    };
    let from = Some((APP, Ticket(5)));
    let outcome = shared
        .hub
        .publish(from, name(&channel), payload, None, &mut shared.requests);
    assert_eq!(
        outcome,
        Ok(RequestOutcome::Pending),
        "the log has to get it"
    );
    turn(&mut worker);
    let batch = worker.poll_history().expect("a batch").number;
    // The log record is durable, but there is no credit to deliver the publication to the subscriber's worker.
    worker.handle_credits(1, CREDITS);
    worker.handle_durable(batch);
    assert_eq!(turn(&mut worker).1, TurnState::Idle(Some(1)));
    worker.handle_credits(1, 0);
    assert_eq!(published(&mut worker), ["kept"]);
    let answers = worker.with_apps(|apps, _| apps.answers.clone());
    assert_eq!(answers, Some(vec![Ticket(5)]));
}

#[test]
fn publications_of_a_resumed_connection_are_swept_in_the_same_turn() {
    /// More subscribers than a publish call serves immediately, so that the publications wait for
    /// `Hub::sweep`.
    const SUBSCRIBERS: u32 = 20;
    let mut worker = worker();
    let far = channel_of(&worker, 1);
    let user = (0..)
        .map(|number| format!("user{number}"))
        .find(|user| worker.shared().hub.home_of(name(&format!("#{user}"))) == WorkerId(0))
        .expect("there are enough");
    for index in 1..=SUBSCRIBERS {
        let id = accept(&mut worker, index);
        let request = handshake(&format!("/ws?user={user}"), "");
        worker.handle_received(id, &mut request.into_bytes());
    }
    assert_eq!(turn(&mut worker).0.len(), SUBSCRIBERS as usize);
    // The first push line waits for a credit, and the second push line waits behind the first.
    worker.handle_credits(1, PUBLISH_CREDITS);
    let lines = push_lines(&mut worker, 0);
    let text =
        format!("{{\"channel\":\"{far}\",\"data\":1}}\n{{\"user\":\"{user}\",\"data\":2}}\n");
    worker.handle_received(lines, &mut text.into_bytes());
    let written = |worker: &mut Tested| {
        let writes = turn(worker).0.into_iter();
        writes.filter(|write| !write.bytes.is_empty()).count()
    };
    assert_eq!(written(&mut worker), 0);
    worker.handle_credits(1, PUBLISH_CREDITS - 1);
    assert_eq!(written(&mut worker), SUBSCRIBERS as usize);
}

#[test]
fn a_publication_that_waits_for_a_lane_is_tried_again_soon() {
    let mut worker = worker();
    let channel = channel_of(&worker, 0);
    subscribe_from(&mut worker, 1, &channel);
    worker.handle_credits(1, CREDITS);
    let mail = HubMessage::Publish {
        channel: channel.as_str().into(),
        payload: Payload {
            kind: PayloadKind::Text,
            bytes: Bytes::from_static(b"stalled"),
        },
        terms: None,
        reply: None,
    };
    worker.handle_message(2, WorkerMessage::Hub(mail));
    assert_eq!(published(&mut worker), [""; 0]);
    assert_eq!(worker.state(), TurnState::Idle(Some(1)));
    assert_eq!(worker.poll_finished(2), 0, "it keeps its credit");
    worker.handle_credits(1, CREDITS - 1);
    assert_eq!(published(&mut worker), ["stalled"]);
    assert_eq!(worker.poll_finished(2), 1);
    assert_eq!(worker.state(), TurnState::Idle(None));
}

#[test]
fn a_message_without_room_stays_before_those_behind_it() {
    let mut worker = worker();
    let list_request = |ticket| ListConnections {
        channel: "news".into(),
        name: None,
        caller: Caller {
            worker: WorkerId(0),
            session: APP,
            ticket: Ticket(ticket),
        },
    };
    let list_requests = &mut worker.shared_mut().requests.list_requests;
    list_requests.extend([list_request(1), list_request(2)]);
    worker.finish_turn();
    let ticket = |outgoing: &OutgoingMail<u32>| match &outgoing.message {
        WorkerMessage::ListConnections(list_request) => list_request.caller.ticket,
        _ => panic!("a list request"),
    };
    let first = worker.poll_message().expect("a message");
    assert_eq!((first.to, ticket(&first)), (1, Ticket(1)));
    worker.put_back(first);
    end_turn(&mut worker);
    worker.finish_turn();
    let again = std::iter::from_fn(|| worker.poll_message());
    let again: Vec<_> = again.map(|one| (one.to, ticket(&one))).collect();
    let expected = [(1, 1), (2, 1), (1, 2), (2, 2)];
    assert_eq!(again, expected.map(|(to, number)| (to, Ticket(number))));
}

/// Returns relayed commands for a session of worker `to`.
fn relay(to: u16, text: &str) -> EmulationRequest {
    let address = EmulationAddress::new(WorkerId(to), id(0, 1), [7; 16]);
    EmulationRequest {
        to: address,
        commands: text.as_bytes().into(),
    }
}

/// Runs a turn. Returns the relays that it sent, each with the receiving worker.
fn relayed(worker: &mut Tested) -> Vec<(usize, String)> {
    worker.finish_turn();
    let messages = std::iter::from_fn(|| worker.poll_message());
    let relays = messages.map(|outgoing| match outgoing.message {
        WorkerMessage::Relay(relay) => {
            let text = String::from_utf8_lossy(&relay.commands).into_owned();
            (outgoing.to, text)
        }
        _ => panic!("only relays are sent"),
    });
    let relays = relays.collect();
    end_turn(worker);
    relays
}

#[test]
fn relays_keep_the_order_of_their_lane_and_wait_for_no_other() {
    let mut worker = worker();
    let all = [(1, "a"), (1, "b"), (2, "c"), (9, "of no worker")];
    for (to, text) in all {
        worker
            .shared_mut()
            .requests
            .relays
            .push_back(relay(to, text));
    }
    worker.handle_credits(1, APP_CREDITS - 1);
    let expected = [(1, "a".to_owned()), (2, "c".to_owned())];
    assert_eq!(relayed(&mut worker), expected);
    assert_eq!(worker.state(), TurnState::Idle(Some(1)), "b waits");
    worker.handle_credits(1, APP_CREDITS);
    worker.shared_mut().requests.relays.push_back(relay(1, "d"));
    assert_eq!(relayed(&mut worker), []);
    worker.handle_credits(1, 0);
    let expected = [(1, "b".to_owned()), (1, "d".to_owned())];
    assert_eq!(relayed(&mut worker), expected);
    assert_eq!(worker.state(), TurnState::Idle(None));
    // Processing a relay returns its credit, even if the connection with the streaming response is closed.
    worker.handle_message(2, WorkerMessage::Relay(relay(0, "late")));
    assert_eq!(worker.poll_finished(2), 1);
}

#[test]
fn a_drain_that_begins_again_is_not_behind_the_first() {
    let mut worker = worker();
    worker.handle_drain(10_000, ShutdownReason::Stopping);
    worker.with_apps(|apps, _| apps.has_stopped = true);
    turn(&mut worker);
    assert!(worker.poll_request().is_some());
    worker.handle_drain(1_000, ShutdownReason::Stopping);
    turn(&mut worker);
    assert!(worker.poll_request().is_none(), "it has been said");
}

#[test]
fn messages_of_the_hub_count_against_the_share_of_applications() {
    let mut worker = worker();
    let channel = channel_of(&worker, 1);
    worker.handle_credits(1, APP_CREDITS - 1);
    let shared = worker.shared_mut();
    let payload = PayloadRef {
        kind: PayloadKind::Text,
        bytes: b"first",
    };
    let outcome = shared
        .hub
        .publish(None, name(&channel), payload, None, &mut shared.requests);
    assert_eq!(outcome, Ok(RequestOutcome::Pending));
    worker.with_apps(|apps, _| apps.outgoing[1].push_back(7));
    worker.finish_turn();
    assert_eq!(posted(&mut worker), [(1, u32::MAX)], "no room for 7");
    assert_eq!(worker.shared().requests.mailer.lanes[1].outgoing_data, 0);
    end_turn(&mut worker);
    worker.handle_credits(1, APP_CREDITS - 1);
    worker.finish_turn();
    assert_eq!(posted(&mut worker), [(1, 7)]);
}

#[test]
fn a_session_whose_handler_has_ended_begins_a_turn_at_once() {
    let mut worker = worker();
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
    worker.shared_mut().app_ready.push(id(7, 7));
    assert_eq!(worker.state(), TurnState::Busy);
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
}
