//! Tests a single worker: its commands for transports, its messages to other workers, and the times of its turns.

mod app;
mod full;
mod lanes;
mod nodes;
mod order;
mod recorder;
mod reports;
mod waiting;
#[path = "../../../frontends/tests/world/mod.rs"]
mod world;

use std::net::{IpAddr, Ipv4Addr};

use veche_frontends::{ListConnections, Now, ShutdownReason, TransportEnd};
use veche_hub::{Caller, ConnectionId, ConnectionList, HubMessage, HubReply, Ticket, WorkerId};
use veche_worker::{
    APP_CREDITS, DrainProgress, ExternalRequest, PendingWrite, TransportCommand, TurnLimits,
    TurnState, Worker, WorkerMessage,
};

use app::{APP, Numbers};
use world::{Options, PUBLIC, PUSH};

const BEGAN_MS: u64 = 1_000_000;
const WRITE_TIMEOUT_MS: u64 = 30_000;

const APPS_STOPPED: DrainProgress = DrainProgress {
    have_apps_stopped: true,
    are_clients_gone: false,
    have_services_ended: false,
};
const CLIENTS_GONE: DrainProgress = DrainProgress {
    are_clients_gone: true,
    ..APPS_STOPPED
};
const SERVICES_ENDED: DrainProgress = DrainProgress {
    have_services_ended: true,
    ..CLIENTS_GONE
};

/// Returns the first of three workers, with `Numbers` as its applications.
fn worker() -> Worker<Numbers, &'static str> {
    worker_at(0)
}

/// Returns the worker with this index of three workers, with `Numbers` as its applications.
fn worker_at(index: u16) -> Worker<Numbers, &'static str> {
    let mut options = Options {
        workers: 3,
        ..Options::default()
    };
    options.limits.write_timeout_ms = WRITE_TIMEOUT_MS;
    let mut shared = options.shared(WorkerId(index));
    shared.apps = Some(Box::new(Numbers {
        outgoing: vec![Default::default(); 3],
        ..Numbers::default()
    }));
    let limits = TurnLimits {
        maintains: false,
        ..TurnLimits::default()
    };
    let mut worker = Worker::new(shared, limits);
    set_ms(&mut worker, BEGAN_MS);
    worker
}

fn set_ms(worker: &mut Worker<Numbers, &'static str>, mono_ms: u64) {
    worker.set_now(Now {
        mono_ms,
        wall_ms: 1_800_000_000_000 + mono_ms,
    });
}

fn id(index: u32, generation: u32) -> ConnectionId {
    ConnectionId { index, generation }
}

fn accept(worker: &mut Worker<Numbers, &'static str>, index: u32) -> ConnectionId {
    accept_on(PUBLIC, worker, index)
}

fn accept_on(
    listener: u16,
    worker: &mut Worker<Numbers, &'static str>,
    index: u32,
) -> ConnectionId {
    let id = id(index, 1);
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    worker.handle_accepted(id, listener, peer, "beside it");
    id
}

fn commands(worker: &mut Worker<Numbers, &'static str>) -> Vec<TransportCommand> {
    std::iter::from_fn(|| worker.poll_transport()).collect()
}

fn end_turn(worker: &mut Worker<Numbers, &'static str>) -> TurnState {
    worker.end_turn();
    worker.state()
}

/// Runs a turn without events. Returns the worker's writes, and its state after the turn.
fn turn(worker: &mut Worker<Numbers, &'static str>) -> (Vec<PendingWrite>, TurnState) {
    worker.finish_turn();
    let writes = std::iter::from_fn(|| worker.poll_write()).collect();
    (writes, end_turn(worker))
}

fn posted(worker: &mut Worker<Numbers, &'static str>) -> Vec<(usize, u32)> {
    let messages = std::iter::from_fn(|| worker.poll_message());
    let numbers = messages.map(|outgoing| match outgoing.message {
        WorkerMessage::App(number) => (outgoing.to, number),
        WorkerMessage::Hub(_) => (outgoing.to, u32::MAX),
        WorkerMessage::ListConnections(_) => (outgoing.to, u32::MAX - 1),
        WorkerMessage::Relay(_) => (outgoing.to, u32::MAX - 2),
        WorkerMessage::RelayTo(..) | WorkerMessage::Block(_) => (outgoing.to, u32::MAX - 3),
    });
    numbers.collect()
}

#[test]
fn a_worker_with_nothing_to_do_waits_for_an_event() {
    let mut worker = worker();
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
    worker.with_apps(|apps, _| apps.due_ms = Some(BEGAN_MS + 40));
    assert_eq!(turn(&mut worker).1, TurnState::Idle(Some(40)));
    set_ms(&mut worker, BEGAN_MS + 40);
    assert_eq!(turn(&mut worker).1, TurnState::Busy);
    let turns = worker.with_apps(|apps, _| apps.turns);
    assert_eq!(turns, Some(3), "applications have each turn once");
}

#[test]
fn memory_is_looked_at_once_a_second_until_nothing_is_left() {
    let mut worker = worker();
    worker.set_limits(TurnLimits::default());
    let (_, state) = turn(&mut worker);
    let mut states = vec![state];
    for second in 1..20 {
        set_ms(&mut worker, BEGAN_MS + second * 1000);
        states.push(turn(&mut worker).1);
    }
    assert_eq!(states.last(), Some(&TurnState::Idle(None)), "{states:?}");
    // The last turn had no maintenance, so it is unknown whether spare memory is left. Therefore the next maintenance
    // is scheduled.
    set_ms(&mut worker, BEGAN_MS + 19_001);
    assert_eq!(turn(&mut worker).1, TurnState::Idle(Some(1000)));
}

#[test]
fn what_waits_for_credit_is_tried_again_soon_and_for_a_failing_log_later() {
    let mut worker = worker();
    let stale = id(7, 7);
    worker.finish_turn();
    worker.shared_mut().waiting_for_credit.push(stale);
    assert_eq!(end_turn(&mut worker), TurnState::Idle(Some(1)));
    worker.set_log_failing(true);
    assert_eq!(end_turn(&mut worker), TurnState::Idle(Some(20)));
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None), "it is gone");
}

#[test]
fn messages_beyond_the_limit_wait_for_the_next_turn() {
    let mut worker = worker();
    worker.set_limits(TurnLimits {
        messages: 2,
        maintains: false,
        ..TurnLimits::default()
    });
    for number in 0..2 {
        assert!(worker.wants_message());
        worker.handle_message(1, WorkerMessage::App(number));
    }
    assert!(!worker.wants_message());
    assert_eq!(turn(&mut worker).1, TurnState::Busy);
    assert!(worker.wants_message());
    assert_eq!(turn(&mut worker).1, TurnState::Idle(None));
    let received = worker.with_apps(|apps, _| std::mem::take(&mut apps.received));
    assert_eq!(received, Some(vec![0, 1]));
    assert_eq!(worker.poll_finished(1), 2, "their credits go back");
    assert_eq!((worker.poll_finished(1), worker.poll_finished(2)), (0, 0));
}

#[test]
fn applications_use_a_part_of_the_credits_and_keep_their_order() {
    let mut worker = worker();
    worker.handle_credits(1, APP_CREDITS - 3);
    worker.handle_credits(2, APP_CREDITS);
    worker.with_apps(|apps, _| {
        apps.outgoing[1].extend(0..5);
        apps.outgoing[2].extend(10..12);
    });
    turn(&mut worker);
    assert_eq!(posted(&mut worker), [(1, 0), (1, 1), (1, 2)]);
    worker.handle_credits(1, 0);
    worker.handle_credits(2, APP_CREDITS - 1);
    turn(&mut worker);
    assert_eq!(posted(&mut worker), [(1, 3), (1, 4), (2, 10)]);
}

#[test]
fn a_list_request_asks_all_others_without_a_credit() {
    let mut worker = worker();
    worker
        .shared_mut()
        .requests
        .list_requests
        .push(ListConnections {
            channel: "news".into(),
            name: None,
            caller: Caller {
                worker: WorkerId(0),
                session: APP,
                ticket: Ticket(9),
            },
        });
    let (_, state) = turn(&mut worker);
    assert_eq!(state, TurnState::Idle(None));
    assert_eq!(posted(&mut worker), [(1, u32::MAX - 1), (2, u32::MAX - 1)]);
    // This worker's own connections are listed immediately.
    let answers = worker.with_apps(|apps, _| apps.answers.clone());
    assert_eq!(answers, Some(vec![Ticket(9)]));
    // The reply to a list request of another worker goes to that worker.
    let list_request = ListConnections {
        channel: "news".into(),
        name: None,
        caller: Caller {
            worker: WorkerId(2),
            session: APP,
            ticket: Ticket(1),
        },
    };
    worker.handle_message(2, WorkerMessage::ListConnections(list_request.into()));
    turn(&mut worker);
    assert_eq!(posted(&mut worker), [(2, u32::MAX)]);
}

#[test]
fn answers_reach_applications_and_not_connections() {
    let mut worker = worker();
    let answer = HubReply::Connections(ConnectionList::default());
    let mail = HubMessage::Answer {
        session: APP,
        ticket: Ticket(4),
        answer,
    };
    worker.handle_message(1, WorkerMessage::Hub(mail));
    let answers = worker.with_apps(|apps, _| apps.answers.clone());
    assert_eq!(answers, Some(vec![Ticket(4)]), "before the turn ends");
}

#[test]
fn a_transport_gets_only_changes() {
    let mut worker = worker();
    let id = accept(&mut worker, 0);
    let handshake_ms = match commands(&mut worker)[..] {
        [TransportCommand::SetTimer(of, due_ms)] if of == id => due_ms,
        ref other => panic!("{other:?}"),
    };
    worker.arm(id, handshake_ms + 1);
    worker.arm(id, handshake_ms - 1);
    worker.arm(id, handshake_ms);
    let nearer = TransportCommand::SetTimer(id, handshake_ms - 1);
    assert_eq!(commands(&mut worker), [nearer]);
    worker.hold(id, true);
    worker.hold(id, true);
    worker.hold(id, false);
    worker.hold(id, false);
    assert_eq!(
        commands(&mut worker),
        [TransportCommand::Pause(id), TransportCommand::Resume(id)]
    );
    // The timer fires too early, so it is set again for the connection's deadline.
    worker.handle_timeout(id);
    assert_eq!(
        commands(&mut worker),
        [TransportCommand::SetTimer(id, handshake_ms)]
    );
}

#[test]
fn what_makes_no_progress_is_aborted_after_the_write_timeout() {
    let mut worker = worker();
    let id = accept(&mut worker, 0);
    commands(&mut worker);
    worker.handle_timeout(id);
    commands(&mut worker);
    // Completes a request, so that the handshake deadline no longer applies.
    worker.handle_received(
        id,
        b"GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n"
            .to_vec()
            .as_mut(),
    );
    let (writes, _) = turn(&mut worker);
    assert_eq!(writes.len(), 1);
    commands(&mut worker);
    worker.handle_stalled(id, 100);
    set_ms(&mut worker, BEGAN_MS + 20_000);
    worker.handle_sent(id, 50);
    // The write timeout begins again when bytes are sent, here at 20 s, so the connection must not be aborted yet.
    set_ms(&mut worker, BEGAN_MS + WRITE_TIMEOUT_MS);
    worker.handle_timeout(id);
    let timers = commands(&mut worker);
    let due_ms = BEGAN_MS + 20_000 + WRITE_TIMEOUT_MS;
    let is_early = |command: &TransportCommand| matches!(command, TransportCommand::SetTimer(_, at) if *at <= due_ms);
    assert!(timers.iter().any(is_early), "{timers:?}");
    let (writes, _) = turn(&mut worker);
    assert!(writes.iter().all(|write| write.end != TransportEnd::Abort));
    set_ms(&mut worker, due_ms);
    worker.handle_timeout(id);
    let (writes, _) = turn(&mut worker);
    assert_eq!(writes.len(), 1);
    assert_eq!((writes[0].id, writes[0].end), (id, TransportEnd::Abort));
    assert_eq!(worker.shared().stats.slow_consumers.read(), 1);
}

#[test]
fn a_transport_that_was_shut_down_closes_when_both_ends_are_done() {
    let mut worker = worker();
    let id = accept(&mut worker, 0);
    commands(&mut worker);
    let request = b"GET /nothing HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    worker.handle_received(id, request.to_vec().as_mut());
    let (writes, _) = turn(&mut worker);
    assert_eq!(writes[0].end, TransportEnd::Shutdown);
    worker.handle_shut_down(id, 0);
    let close = TransportCommand::Close(id);
    assert!(!commands(&mut worker).contains(&close), "the peer may send");
    worker.handle_shut_down(id, 5);
    worker.handle_ended(id);
    let (writes, _) = turn(&mut worker);
    assert!(
        writes
            .iter()
            .all(|write| write.end == TransportEnd::Shutdown),
        "{writes:?}"
    );
    assert!(!commands(&mut worker).contains(&close), "bytes are unsent");
    worker.handle_sent(id, 5);
    assert!(!commands(&mut worker).contains(&close), "bytes are unsent");
    worker.handle_sent(id, 0);
    assert!(commands(&mut worker).contains(&close));
    let closed = worker.handle_closed(id, None).expect("it was there");
    assert_eq!(closed.transport, "beside it");
    assert_eq!(worker.connections(), 0);
    assert_eq!(worker.shared().stats.connections.read(), 0);
}

#[test]
fn a_stale_id_does_nothing() {
    let mut worker = worker();
    let current = accept(&mut worker, 0);
    commands(&mut worker);
    let stale = id(0, 2);
    worker.handle_received(stale, &mut [b'x'; 10]);
    worker.handle_ended(stale);
    worker.handle_timeout(stale);
    worker.handle_failed(stale, "late");
    worker.handle_late(stale, "late");
    worker.hold(stale, true);
    worker.arm(stale, 1);
    worker.reject(stale, b"go");
    assert!(worker.transport_mut(stale).is_none());
    assert!(worker.handle_closed(stale, None).is_none());
    assert_eq!(commands(&mut worker), []);
    assert!(turn(&mut worker).0.is_empty());
    assert_eq!(worker.connections(), 1);
    assert_eq!(worker.transport_mut(current), Some(&mut "beside it"));
}

#[test]
fn a_drain_closes_all_when_its_time_is_over() {
    let mut worker = worker();
    for index in 0..10 {
        accept(&mut worker, index);
    }
    worker.handle_drain(10_000, ShutdownReason::Stopping);
    // If applications do not stop, the closing of clients begins after a quarter of the drain time.
    set_ms(&mut worker, BEGAN_MS + 2_499);
    assert_eq!(turn(&mut worker).0.len(), 0);
    set_ms(&mut worker, BEGAN_MS + 8_000);
    assert_eq!(turn(&mut worker).0.len(), 10);
    // Services may need the connections to other servers, so services are stopped before the connections are closed.
    let after = |worker: &mut Worker<Numbers, &'static str>, ms: u64| {
        set_ms(worker, BEGAN_MS + ms);
        turn(worker);
        let times = worker.with_apps(|apps, _| apps.services_until_ms.clone());
        (times.unwrap_or_default(), worker.has_stopped_servers())
    };
    assert_eq!(after(&mut worker, 8_999), (vec![], false));
    let until_ms = BEGAN_MS + 10_000;
    assert_eq!(after(&mut worker, 9_000), (vec![until_ms], false));
    assert_eq!(after(&mut worker, 9_499), (vec![until_ms], false));
    assert_eq!(after(&mut worker, 9_500), (vec![until_ms], true));
}

/// With `Stopping`, pushes of back ends still reach the remaining clients, so back ends are closed last. With
/// `Replaced`, pushes would not reach the clients of the new process, so back ends are closed at once.
#[test]
fn a_drain_tells_back_ends_last_unless_the_process_is_replaced() {
    for (shutdown_reason, at_once, with_the_clients, at_the_end) in [
        (ShutdownReason::Stopping, vec![], vec![1], vec![0]),
        (ShutdownReason::Replaced, vec![0], vec![1], vec![]),
    ] {
        let mut worker = worker();
        accept_on(PUSH, &mut worker, 0);
        accept(&mut worker, 1);
        worker.handle_drain(10_000, shutdown_reason);
        let mut after = |ms: u64| -> Vec<u32> {
            set_ms(&mut worker, BEGAN_MS + ms);
            let (writes, _) = turn(&mut worker);
            writes.iter().map(|write| write.id.index).collect()
        };
        assert_eq!(after(0), at_once, "{shutdown_reason:?}");
        assert_eq!(after(8_000), with_the_clients, "{shutdown_reason:?}");
        assert_eq!(after(9_499), Vec::<u32>::new(), "{shutdown_reason:?}");
        assert_eq!(after(9_500), at_the_end, "{shutdown_reason:?}");
    }
    let mut worker = worker();
    let client = accept(&mut worker, 0);
    accept_on(PUSH, &mut worker, 1);
    worker.with_apps(|apps, _| apps.has_stopped = true);
    worker.handle_drain(10_000, ShutdownReason::Stopping);
    worker.handle_drain_progress(APPS_STOPPED);
    turn(&mut worker);
    worker.handle_closed(client, None);
    worker.finish_turn();
    let asked: Vec<ExternalRequest> = std::iter::from_fn(|| worker.poll_request()).collect();
    assert!(
        asked
            .iter()
            .any(|request| matches!(request, ExternalRequest::ClientsGone))
    );
    worker.handle_drain_progress(CLIENTS_GONE);
    let (writes, _) = turn(&mut worker);
    let after: Vec<u32> = writes.iter().map(|write| write.id.index).collect();
    assert_eq!(after, [1], "no client is left");
}

#[test]
fn a_drain_tells_applications_then_clients_over_time() {
    let mut worker = worker();
    let ids: Vec<_> = (0..10).map(|index| accept(&mut worker, index)).collect();
    worker.handle_drain(10_000, ShutdownReason::Stopping);
    assert_eq!(worker.with_apps(|apps, _| apps.is_stopping), Some(true));
    let (writes, state) = turn(&mut worker);
    assert_eq!((writes.len(), state), (0, TurnState::Idle(Some(20))));
    assert!(worker.poll_request().is_none());
    worker.with_apps(|apps, _| apps.has_stopped = true);
    worker.finish_turn();
    assert!(matches!(
        worker.poll_request(),
        Some(ExternalRequest::AppsStopped)
    ));
    assert!(worker.poll_request().is_none());
    assert_eq!(end_turn(&mut worker), TurnState::Busy);
    // The first client is closed 20 ms after the applications of all workers have stopped.
    worker.handle_drain_progress(APPS_STOPPED);
    let after = |worker: &mut Worker<Numbers, &'static str>, ms: u64| {
        set_ms(worker, BEGAN_MS + ms);
        let (writes, _) = turn(worker);
        assert!(worker.poll_request().is_none());
        writes.len()
    };
    assert_eq!(after(&mut worker, 19), 0);
    assert_eq!(after(&mut worker, 20), 1, "the first one at once");
    // The closing of ten clients is spread over the time from 20 to 8,000 ms. Half-way, five are closed: the first one
    // at 20 ms, and four more since then.
    assert_eq!(after(&mut worker, 20 + 3_990), 4);
    assert!(worker.is_draining() && !worker.has_stopped_servers());
    for id in ids {
        worker.handle_closed(id, None);
    }
    // The handler of one client is still suspended, so the worker still counts as having clients.
    worker.with_apps(|apps, _| {
        apps.has_clients = true;
        apps.do_services_go_on = true;
    });
    worker.finish_turn();
    assert!(worker.poll_request().is_none());
    worker.with_apps(|apps, _| apps.has_clients = false);
    worker.finish_turn();
    assert!(matches!(
        worker.poll_request(),
        Some(ExternalRequest::ClientsGone)
    ));
    assert!(worker.poll_request().is_none());
    let until_ms = |worker: &mut Worker<Numbers, &'static str>| {
        let times = worker.with_apps(|apps, _| apps.services_until_ms.clone());
        times.unwrap_or_default()
    };
    worker.finish_turn();
    assert_eq!(
        until_ms(&mut worker),
        Vec::<u64>::new(),
        "other workers have clients"
    );
    worker.handle_drain_progress(CLIENTS_GONE);
    worker.finish_turn();
    assert_eq!(until_ms(&mut worker), [BEGAN_MS + 10_000]);
    assert!(worker.poll_request().is_none() && !worker.has_stopped_servers());
    worker.with_apps(|apps, _| apps.do_services_go_on = false);
    worker.finish_turn();
    assert!(matches!(
        worker.poll_request(),
        Some(ExternalRequest::ServicesEnded)
    ));
    worker.finish_turn();
    assert!(worker.poll_request().is_none() && !worker.has_stopped_servers());
    worker.handle_drain_progress(SERVICES_ENDED);
    worker.finish_turn();
    assert_eq!(until_ms(&mut worker).len(), 1, "they are notified once");
    assert!(worker.has_stopped_servers(), "nothing needs them any more");
}

#[test]
fn services_are_stopped_at_once_when_another_process_takes_over() {
    let mut worker = worker();
    accept(&mut worker, 0);
    worker.with_apps(|apps, _| apps.do_services_go_on = true);
    worker.handle_drain(60_000, ShutdownReason::Replaced);
    worker.finish_turn();
    let until_ms = |worker: &mut Worker<Numbers, &'static str>| {
        let times = worker.with_apps(|apps, _| apps.services_until_ms.clone());
        times.unwrap_or_default()
    };
    // Services have at most ten seconds, although the drain has sixty.
    assert_eq!(until_ms(&mut worker), [BEGAN_MS + 10_000]);
    assert!(worker.poll_request().is_none());
    // A second drain may have less time.
    worker.handle_drain(1_000, ShutdownReason::Stopping);
    worker.finish_turn();
    let expected = [BEGAN_MS + 10_000, BEGAN_MS + 1_000];
    assert_eq!(until_ms(&mut worker), expected);
    worker.with_apps(|apps, _| apps.do_services_go_on = false);
    worker.finish_turn();
    assert!(matches!(
        worker.poll_request(),
        Some(ExternalRequest::ServicesEnded)
    ));
    assert!(worker.poll_request().is_none(), "the client is still there");
}
