//! Conversion of messages between nodes to messages between workers, and back.

#[path = "../../nodes/tests/samples/mod.rs"]
mod samples;

use veche_hub::{ChannelQuery, HubMessage, Ticket};
use veche_nodes::NodeMessage;
use veche_types::{ConnectionId, WorkerId};
use veche_worker::WorkerMessage;

/// The worker from which all requests in the samples come.
const WORKER: WorkerId = WorkerId(3);
const OTHER: WorkerId = WorkerId(4);

/// Prefixes of the names of the samples that are for the process, not for a worker.
const FOR_THE_PROCESS: [&str; 7] = [
    "announce",
    "leave",
    "block",
    "app",
    "answer, instructed",
    "answer, blocked",
    "answer, too many blocked",
];

#[test]
fn worker_messages_survive_a_round_trip() {
    for (name, envelope) in samples::all() {
        let message = envelope.message;
        let is_for_process = FOR_THE_PROCESS.iter().any(|begin| name.starts_with(begin))
            || name == "answer, block not written";
        match WorkerMessage::<()>::from_node_message(message.clone()) {
            Err(same) => {
                assert!(is_for_process, "{name}");
                assert_eq!(same, message, "{name}");
            }
            Ok(between_workers) => {
                assert!(!is_for_process, "{name}");
                assert_eq!(between_workers.is_data(), message.is_data(), "{name}");
                // A request goes from its caller to the other worker, and the reply returns.
                let (from, to) = match message {
                    NodeMessage::Answer(_) => (OTHER, WORKER),
                    _ => (WORKER, OTHER),
                };
                let back = between_workers.into_node_message(from, to);
                assert_eq!(back.ok(), Some(message), "{name}");
            }
        }
    }
}

#[test]
fn what_belongs_to_the_order_of_a_channel_stays_on_its_node() {
    let session = ConnectionId {
        index: 0,
        generation: 0,
    };
    let ticket = Ticket(1);
    let ask = |channel: &str, query| HubMessage::Query {
        channel: channel.into(),
        query,
        session,
        ticket,
    };
    for mail in [
        ask("#ann", ChannelQuery::Presence),
        ask("news", ChannelQuery::UserStatus),
        HubMessage::Lost {
            channel: "news".into(),
        },
        HubMessage::LogFull { is_full: true },
        HubMessage::Unsubscribe {
            channel: "news".into(),
            client: None,
            registration: None,
        },
    ] {
        let words = format!("{mail:?}");
        let message = WorkerMessage::<()>::Hub(mail);
        match message.into_node_message(WORKER, WORKER) {
            Err(WorkerMessage::Hub(same)) => assert_eq!(format!("{same:?}"), words),
            other => panic!("{other:?}"),
        }
    }
    let app = WorkerMessage::App(7_u32).into_node_message(WORKER, WORKER);
    assert!(matches!(app, Err(WorkerMessage::App(7))));
}
