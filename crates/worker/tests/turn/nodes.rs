//! The lane to the cluster: the last lane of this worker, after those of two other workers.

use std::sync::Arc;

use veche_hub::{HubMessage, Outlet as _, Ticket, UserAction, UserCommand, WorkerId};
use veche_nodes::{Ban, BanRequest, EmulationAddress, EmulationRequest, NodeId};
use veche_types::codes::CloseCode;
use veche_worker::WorkerMessage;

use super::{APP, worker};

const NODES: WorkerId = WorkerId(2);

fn relay(worker: u16) -> EmulationRequest {
    EmulationRequest {
        to: EmulationAddress::new(WorkerId(worker), APP, [0; 16]),
        commands: Box::default(),
    }
}

#[test]
fn a_block_leaves_before_the_instruction_that_follows_it() {
    let mut worker = worker();
    let ports = &mut worker.shared_mut().requests;
    ports.nodes = Some(NODES);
    let (code, reason) = CloseCode::Blocked.parts();
    let reason = Arc::from(reason);
    let mail = HubMessage::CommandUser {
        channel: "#ann".into(),
        instruction: Arc::new(UserCommand::to_all(UserAction::Disconnect { code, reason })),
        reply: Some((APP, Ticket(1))),
    };
    ports.send_message(NODES, mail);
    let block = Ban::UserAllowed {
        user: "ann".to_owned(),
    };
    let caller = None;
    ports.blocks.push_back(BanRequest { block, caller });
    worker.finish_turn();
    let first = worker.poll_message().expect("a message");
    assert_eq!(first.to, 2);
    assert!(matches!(first.message, WorkerMessage::Block(_)));
    let second = worker.poll_message().expect("a message");
    assert!(matches!(second.message, WorkerMessage::Hub(_)));
    assert!(worker.poll_message().is_none());
}

#[test]
fn relays_to_nodes_take_the_lane_and_made_up_addresses_do_not() {
    let mut worker = worker();
    let ports = &mut worker.shared_mut().requests;
    ports.nodes = Some(NODES);
    ports.far_relays.push_back((NodeId(7), relay(2)));
    // The number of the lane as that of a worker.
    ports.relays.push_back(relay(2));
    ports.relays.push_back(relay(1));
    worker.finish_turn();
    let mut sent: Vec<_> = std::iter::from_fn(|| worker.poll_message())
        .map(|one| {
            let node = match one.message {
                WorkerMessage::RelayTo(node, _) => Some(node),
                WorkerMessage::Relay(_) => None,
                other => panic!("{other:?}"),
            };
            (one.to, node)
        })
        .collect();
    sent.sort();
    assert_eq!(sent, [(1, None), (2, Some(NodeId(7)))]);
}
