//! Tests of the lane to other nodes, which is the last lane of the worker.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use veche_hub::{HubMessage, Outlet as _, Ticket, UserAction, UserCommand, WorkerId};
use veche_nodes::{Ban, BanRequest, EmulationAddress, EmulationRequest, NodeId};
use veche_types::codes::CloseCode;
use veche_worker::{PendingWrite, TurnLimits, Worker, WorkerMessage};

use super::app::Numbers;
use super::world::wire::{ServerMessage, handshake, server_messages};
use super::world::{Options, PUBLIC};
use super::{APP, id, worker};

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
    // This relay has a forged address whose worker is the number of the lane to other nodes. The relay is dropped.
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

/// Clients without a user stay connected: user commands never concern them.
#[test]
fn clients_with_a_user_connect_again_after_lost_commands() {
    let shared = Options::default().shared(WorkerId(0));
    let mut worker: Worker<Numbers, ()> = Worker::new(shared, TurnLimits::default());
    let turn = |worker: &mut Worker<Numbers, ()>| -> Vec<PendingWrite> {
        worker.finish_turn();
        let writes = std::iter::from_fn(|| worker.poll_write()).collect();
        worker.end_turn();
        writes
    };
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let targets = ["/ws?user=ann", "/open?channel=news", "/ws?user=bob"];
    for (index, target) in (0..).zip(targets) {
        let peer = id(index, 1);
        worker.handle_accepted(peer, PUBLIC, localhost, ());
        let mut request = handshake(target, "").into_bytes();
        worker.handle_received(peer, &mut request);
    }
    assert_eq!(turn(&mut worker).len(), 3);
    worker.handle_commands_lost();
    let closed: Vec<_> = { turn(&mut worker).into_iter() }
        .map(|write| (write.id.index, server_messages(&write.bytes)))
        .collect();
    let close = || {
        vec![ServerMessage::Close(
            Some(3010),
            "insufficient state".to_owned(),
        )]
    };
    assert_eq!(closed, [(0, close()), (2, close())]);
}
