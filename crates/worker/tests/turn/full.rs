//! Tests full lanes: messages wait in order until their lane has space, and none is lost.

use std::collections::VecDeque;

use veche_frontends::ListConnections;
use veche_hub::{Caller, Ticket, WorkerId};
use veche_worker::{TurnState, Worker, WorkerMessage};

use crate::app::{APP, Numbers};
use crate::{end_turn, posted, worker, worker_at};

/// The number that represents a message to a hub in the result of `posted`.
const MAIL: u32 = u32::MAX;

/// The number of messages that fit into a lane.
const ROOM: usize = 2;

fn list_request(from: u16, ticket: u32) -> ListConnections {
    ListConnections {
        channel: "news".into(),
        name: None,
        caller: Caller {
            worker: WorkerId(from),
            session: APP,
            ticket: Ticket(ticket),
        },
    }
}

#[test]
fn a_message_without_room_comes_first_next_turn() {
    let mut worker = worker();
    worker.with_apps(|apps, _| apps.outgoing[1].extend(0..3));
    worker.finish_turn();
    let first = worker.poll_message().expect("a message");
    worker.put_back(first);
    assert_eq!(end_turn(&mut worker), TurnState::Busy);
    assert_eq!(posted(&mut worker), [(1, 0), (1, 1), (1, 2)]);
}

/// The lane to worker 2 is full. A reply for worker 1 is produced in the turn in which the lane to worker 2 has space
/// again; both replies must be sent.
#[test]
fn a_message_without_room_keeps_none_for_other_workers_back() {
    let mut worker = worker();
    worker.handle_message(2, WorkerMessage::ListConnections(list_request(2, 1).into()));
    worker.finish_turn();
    let answer = worker.poll_message().expect("an answer");
    assert_eq!(answer.to, 2);
    worker.put_back(answer);
    assert_eq!(end_turn(&mut worker), TurnState::Busy);
    worker.handle_message(1, WorkerMessage::ListConnections(list_request(1, 2).into()));
    worker.finish_turn();
    assert_eq!(posted(&mut worker), [(2, MAIL), (1, MAIL)]);
    assert_eq!(end_turn(&mut worker), TurnState::Idle(None));
}

/// Three workers and the lanes between them.
struct Mesh {
    workers: [Worker<Numbers, &'static str>; 3],
    /// The messages of each lane, by sender and receiver.
    lanes: [[VecDeque<WorkerMessage<u32>>; 3]; 3],
}

impl Mesh {
    fn new() -> Self {
        Self {
            workers: [0, 1, 2].map(worker_at),
            lanes: Default::default(),
        }
    }

    /// Runs a turn of a worker. The worker receives and sends messages as in the server.
    fn turn(&mut self, me: usize) -> TurnState {
        let worker = &mut self.workers[me];
        for from in 0..3 {
            while worker.wants_message()
                && let Some(message) = self.lanes[from][me].pop_front()
            {
                worker.handle_message(from, message);
            }
        }
        worker.finish_turn();
        while let Some(outgoing) = worker.poll_message() {
            let lane = &mut self.lanes[me][outgoing.to];
            if lane.len() == ROOM {
                worker.put_back(outgoing);
                break;
            }
            lane.push_back(outgoing.message);
        }
        end_turn(worker)
    }

    /// Runs turns of the given workers until all of them wait and all lanes are empty; at most 100 turns of each.
    fn settle(&mut self, workers: &[usize]) {
        for _ in 0..100 {
            let states: Vec<_> = workers.iter().map(|&me| self.turn(me)).collect();
            let waits = |state: &TurnState| *state != TurnState::Busy;
            let lanes = self.lanes.as_flattened().iter();
            if states.iter().all(waits) && lanes.map(VecDeque::len).sum::<usize>() == 0 {
                return;
            }
        }
    }

    /// Returns the tickets of the partial replies that a worker's applications have received.
    fn answers(&mut self, of: usize) -> Vec<u32> {
        let answers = self.workers[of].with_apps(|apps, _| std::mem::take(&mut apps.answers));
        let mut tickets: Vec<_> = { answers.expect("it has applications").into_iter() }
            .map(|Ticket(ticket)| ticket)
            .collect();
        tickets.sort_unstable();
        tickets
    }
}

/// All workers answer each list request even if lanes are full, since each message waits until its lane has space.
#[test]
fn a_list_request_outlasts_a_worker_that_has_no_turn_and_takes_no_messages() {
    const ASKED: u32 = 5;
    let mut mesh = Mesh::new();
    for from in 0..2 {
        for ticket in 0..ASKED {
            let ports = &mut mesh.workers[usize::from(from)].shared_mut().requests;
            ports.list_requests.push(list_request(from, ticket));
        }
    }
    mesh.settle(&[0, 1]);
    let waiting = [&mesh.lanes[0][2], &mesh.lanes[1][2]].map(VecDeque::len);
    assert_eq!(waiting, [ROOM; 2], "they are full");
    mesh.settle(&[0, 1, 2]);
    let each_three_times: Vec<u32> = (0..ASKED).flat_map(|ticket| [ticket; 3]).collect();
    for of in 0..2 {
        assert_eq!(mesh.answers(of), each_three_times, "of worker {of}");
    }
    for me in 0..3 {
        assert_eq!(mesh.turn(me), TurnState::Idle(None));
    }
}
