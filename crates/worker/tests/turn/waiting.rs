//! The order in which connections continue whose input waits for a later turn, and how often.

use veche_frontends::{Connection, WaitReason};
use veche_worker::{TurnLimits, TurnState, Worker};

use crate::app::Numbers;
use crate::world::wire::get;
use crate::{BEGAN_MS, accept, end_turn, id, set_ms, turn, worker};

type Tested = Worker<Numbers, &'static str>;

/// Sets the work that one connection, and all together, may do in a turn.
fn limit(worker: &mut Tested, work: u64) {
    worker.set_limits(TurnLimits {
        connection_work: work,
        event_work: work,
        backlog_work: work,
        maintains: false,
        ..TurnLimits::default()
    });
    worker.end_turn();
}

#[test]
fn connections_that_wait_for_output_are_asked_about_in_order() {
    let mut worker = worker();
    limit(&mut worker, u64::MAX);
    let ids = [0, 1, 2].map(|index| accept(&mut worker, index));
    for id in ids {
        worker.handle_received(id, &mut get("/nothing").repeat(2_000).into_bytes());
    }
    worker.finish_turn();
    while worker.poll_write().is_some() {}
    let asked: Vec<_> = std::iter::from_fn(|| worker.poll_unsent()).collect();
    assert_eq!(asked, ids);
    worker.handle_unsent(ids[0], 1 << 30);
    worker.handle_unsent(ids[2], 1 << 30);
    assert_eq!(end_turn(&mut worker), TurnState::Idle(None));
    worker.handle_unsent(ids[1], 0);
    assert_eq!(end_turn(&mut worker), TurnState::Busy);
    // The resumed connection fills its outbox again. The others wait until their output is sent.
    worker.finish_turn();
    while worker.poll_write().is_some() {}
    let asked: Vec<_> = std::iter::from_fn(|| worker.poll_unsent()).collect();
    assert_eq!(asked, [ids[1]]);
}

#[test]
fn what_events_left_for_the_turn_has_work_of_its_own() {
    let mut worker = worker();
    limit(&mut worker, 1);
    set_ms(&mut worker, BEGAN_MS);
    for index in 0..3 {
        let peer = accept(&mut worker, index);
        worker.handle_received(peer, &mut get("/nothing").into_bytes());
    }
    // The turn answers one request within the work limit of events and one within that of the backlog. The third waits.
    let (writes, state) = turn(&mut worker);
    assert_eq!((writes.len(), state), (2, TurnState::Busy));
    let (writes, state) = turn(&mut worker);
    assert_eq!((writes.len(), state), (1, TurnState::Idle(None)));
}

#[test]
fn a_request_that_arrives_in_pieces_waits_behind_one_served_earlier() {
    let mut worker = worker();
    let (pieces, whole, other) = (id(0, 1), id(1, 1), id(2, 1));
    for (ms, peer, bytes) in [(0, pieces, "G"), (10, whole, "G"), (30, pieces, "E")] {
        set_ms(&mut worker, BEGAN_MS + ms);
        if bytes == "G" {
            accept(&mut worker, peer.index);
        }
        worker.handle_received(peer, &mut bytes.to_owned().into_bytes());
        turn(&mut worker);
    }
    limit(&mut worker, 1);
    set_ms(&mut worker, BEGAN_MS + 40);
    turn(&mut worker);
    accept(&mut worker, other.index);
    let request = get("/nothing");
    worker.handle_received(other, &mut request.clone().into_bytes());
    worker.handle_received(pieces, &mut b"T".to_vec());
    worker.handle_received(whole, &mut request.as_bytes()[1..].to_vec());
    let (writes, _) = turn(&mut worker);
    let written: Vec<_> = writes.iter().map(|write| write.id).collect();
    assert_eq!(written, [other, whole]);
}

#[test]
fn a_connection_whose_output_was_sent_before_it_resumes_is_resumed_once() {
    let mut worker = worker();
    let peer = accept(&mut worker, 0);
    let reason = |worker: &Tested| worker.connection(peer).and_then(Connection::wait_reason);
    limit(&mut worker, u64::MAX);
    worker.handle_received(peer, &mut get("/nothing").repeat(2_000).into_bytes());
    for _ in 0..3 {
        turn(&mut worker);
        assert_eq!(reason(&worker), Some(WaitReason::Output));
        assert_eq!(worker.poll_unsent(), Some(peer));
        assert_eq!(worker.poll_unsent(), None);
        worker.handle_unsent(peer, 1);
        worker.handle_sent(peer, 0);
    }
    // The share of a turn suffices for one request.
    limit(&mut worker, 1);
    for _ in 0..2 {
        let (writes, _) = turn(&mut worker);
        let [written] = &writes[..] else {
            panic!("one write")
        };
        let responses = String::from_utf8_lossy(&written.bytes);
        assert_eq!(responses.matches("HTTP/1.1 ").count(), 1);
        assert_eq!(reason(&worker), Some(WaitReason::Turn));
        assert_eq!(worker.shared().waiting_for_turn.len(), 1);
        // An outdated entry, which must not continue the connection: it waits for its turn.
        worker.shared_mut().waiting_for_credit.push(peer);
    }
}
