//! Messages between workers: their classes, credits, and relays of client commands.

use veche_frontends::worker_context::TokenRenewal;
use veche_frontends::{AppAnswer, AppId};
use veche_hub::{
    ChannelName, ConnectionList, HubMessage, HubReply, Outlet as _, Payload, PayloadKind,
    SubscribeOptions, Ticket, WorkerId,
};
use veche_worker::{APP_CREDITS, TurnLimits, TurnState, Worker, WorkerMessage};

use crate::app::{APP, Numbers};
use crate::world::Options;
use crate::world::wire::post;
use crate::{accept, end_turn, id, posted, turn, worker};

/// The number that represents a relay in the result of `posted`.
const RELAY: u32 = u32::MAX - 2;

fn answer() -> HubMessage {
    HubMessage::Answer {
        session: APP,
        ticket: Ticket(1),
        answer: HubReply::Connections(ConnectionList::default()),
    }
}

fn publication(channel: &str) -> HubMessage {
    HubMessage::Publish {
        channel: channel.into(),
        payload: Payload {
            kind: PayloadKind::Text,
            bytes: "hello".into(),
        },
        terms: None,
        reply: None,
    }
}

/// Relays client commands to a streaming response on worker `to`.
fn relay(worker: &mut Worker<Numbers, &'static str>, index: u32, to: u8) {
    // An address contains worker, connection and secret as base64. All bits are zero except those of the worker.
    let address = ["AAAA", "AAEA", "AAIA", "AAMA"][usize::from(to)];
    let address = format!("{address}{}", "A".repeat(31));
    let body = format!(r#"{{"session":"{address}","node":"","data":"{{}}"}}"#);
    let caller = accept(worker, index);
    let mut request = post("/centrifuge/all/emulation", &body).into_bytes();
    worker.handle_received(caller, &mut request);
}

fn unfinished(worker: &Worker<Numbers, &'static str>) -> Vec<u32> {
    let lanes = &worker.shared().requests.mailer.lanes;
    lanes.iter().map(|lane| lane.unfinished).collect()
}

#[test]
fn data_takes_a_credit_and_control_none() {
    assert!(WorkerMessage::<u32>::Hub(publication("news")).is_data());
    assert!(!WorkerMessage::<u32>::Hub(answer()).is_data());
    assert!(WorkerMessage::App(1).is_data());
    let list_request = crate::recorder::list_request(1);
    assert!(!WorkerMessage::<u32>::ListConnections(list_request.into()).is_data());
}

#[test]
fn mail_of_the_hub_leaves_in_order_and_data_among_it_is_counted() {
    let mut worker = worker();
    let ports = &mut worker.shared_mut().requests;
    for (to, mail) in [
        (1, answer()),
        (2, publication("news")),
        (1, publication("news")),
        (1, answer()),
    ] {
        ports.send_message(WorkerId(to), mail);
    }
    worker.finish_turn();
    let order: Vec<_> = std::iter::from_fn(|| worker.poll_message())
        .map(|outgoing| (outgoing.to, outgoing.message.is_data()))
        .collect();
    assert_eq!(order, [(1, false), (1, true), (1, false), (2, true)]);
    assert_eq!(unfinished(&worker), [0, 1, 1]);
    let lanes = &worker.shared().requests.mailer.lanes;
    assert!(lanes.iter().all(|lane| lane.outgoing_data == 0));
    assert_eq!(end_turn(&mut worker), TurnState::Idle(None));
}

#[test]
fn relays_wait_for_credit_and_keep_their_order() {
    let mut worker = worker();
    worker.handle_credits(1, APP_CREDITS);
    // One address names worker 3, which does not exist, as a forged address could.
    for (index, to) in [1, 2, 1, 3, 2].into_iter().enumerate() {
        relay(&mut worker, index as u32, to);
    }
    turn(&mut worker);
    assert_eq!(posted(&mut worker), [(2, RELAY), (2, RELAY)]);
    assert_eq!(unfinished(&worker), [0, APP_CREDITS, 2]);
    assert_eq!(worker.state(), TurnState::Idle(Some(1)), "some wait");
    worker.handle_credits(1, APP_CREDITS - 1);
    turn(&mut worker);
    assert_eq!(posted(&mut worker), [(1, RELAY)]);
    worker.handle_credits(1, 0);
    turn(&mut worker);
    assert_eq!(posted(&mut worker), [(1, RELAY)]);
    assert_eq!(worker.state(), TurnState::Idle(None));
}

#[test]
fn a_relay_for_a_response_that_is_over_gives_its_credit_back() {
    let mut worker = worker();
    relay(&mut worker, 0, 1);
    relay(&mut worker, 1, 0);
    worker.finish_turn();
    assert_eq!(worker.shared().requests.relays.len(), 1, "one was for here");
    let relay = worker.poll_message().expect("a relay").message;
    assert!(relay.is_data() && worker.poll_message().is_none());
    assert!(worker.shared().requests.relays.is_empty());
    worker.handle_message(2, relay);
    turn(&mut worker);
    assert_eq!(worker.poll_finished(2), 1);
}

#[test]
fn what_waits_for_applications_takes_another_turn() {
    let cases: [fn(&mut Worker<Numbers, &'static str>); 2] = [
        |worker| worker.shared_mut().app_ready.push(id(7, 7)),
        |worker| {
            let answer = AppAnswer::End { is_whole: true };
            let answers = &mut worker.shared_mut().requests.app_answers;
            answers.push_back((id(7, 7), answer));
        },
    ];
    for case in cases {
        let mut worker = worker();
        worker.finish_turn();
        case(&mut worker);
        assert_eq!(end_turn(&mut worker), TurnState::Busy);
        assert_eq!(turn(&mut worker).1, TurnState::Idle(None), "it is done");
    }
    let mut worker = worker();
    worker.finish_turn();
    worker.shared_mut().requests.renewals.push(TokenRenewal {
        session: id(7, 7),
        credential: String::new(),
        app: AppId(0),
        ticket: 0,
    });
    assert_eq!(end_turn(&mut worker), TurnState::Busy);
}

#[test]
fn a_publication_that_waits_for_credit_is_tried_again_soon() {
    let mut home = worker();
    let options = Options {
        workers: 3,
        ..Options::default()
    };
    let mut other: Worker<Numbers> =
        Worker::new(options.shared(WorkerId(1)), TurnLimits::default());
    let name = (0..)
        .map(|number| format!("room:{number}"))
        .find(|name| {
            let name = ChannelName::new(name).expect("a name");
            home.shared().hub.home_of(name) == WorkerId(0)
        })
        .expect("endless");
    let channel = ChannelName::new(&name).expect("a name");
    let shared = other.shared_mut();
    shared
        .hub
        .subscribe(
            id(0, 1),
            channel,
            Ticket(1),
            &SubscribeOptions::default(),
            &mut shared.requests,
        )
        .expect("a subscription");
    other.finish_turn();
    while let Some(outgoing) = other.poll_message() {
        assert_eq!(outgoing.to, 0);
        home.handle_message(1, outgoing.message);
    }
    turn(&mut home);
    posted(&mut home);
    home.handle_credits(1, 1024);
    let mail = publication(&name);
    home.handle_message(1, WorkerMessage::Hub(mail));
    assert_eq!(turn(&mut home).1, TurnState::Idle(Some(1)));
    home.handle_credits(1, 0);
    assert_eq!(turn(&mut home).1, TurnState::Idle(None));
    assert_eq!(posted(&mut home), [(1, u32::MAX)]);
}

#[test]
fn a_drain_without_time_closes_all_at_once() {
    let mut worker = worker();
    assert!(!worker.is_draining() && !worker.has_stopped_servers());
    for index in 0..3 {
        accept(&mut worker, index);
    }
    worker.handle_drain(0, veche_frontends::ShutdownReason::Stopping);
    assert!(worker.is_draining());
    assert_eq!(turn(&mut worker).0.len(), 3);
    assert!(worker.has_stopped_servers());
}
