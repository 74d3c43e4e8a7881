//! Tests that two transports between nodes keep the contract of `NodeTransport`: one passes values within a process,
//! the other passes bytes over a Unix socket.

#[path = "../../../../tests/now.rs"]
mod clock;
#[path = "../samples/mod.rs"]
mod samples;

mod lane;
mod socket;

use std::thread;
use std::time::Duration;

use clock::now;
use veche_nodes::{
    Envelope, NodeId, NodeMessage, NodeTransport, NodeTransportFull, SequenceCheck,
    SequenceTracker, Sequencer,
};

/// The ids of the two nodes in the tests.
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

/// Maximum number of unprocessed data messages in each direction.
const CREDITS: u32 = 8;

/// Number of messages that each node sends in a test.
const MESSAGES: usize = 4_000;

/// Time limit of a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// A kind of transport under test, between two nodes.
trait Pair: NodeTransport + Send + Sized + 'static {
    /// Returns both ends: that of node `A` and that of node `B`.
    fn pair() -> (Self, Self);

    /// Breaks the link and opens a new one. Messages in flight are lost, and their credits return.
    fn cut(one: &mut Self, other: &mut Self);
}

/// Returns the messages that a node sends, in order. They are of all kinds; at least every third needs a credit.
fn messages() -> impl Iterator<Item = NodeMessage> {
    let samples = samples::all()
        .into_iter()
        .map(|(_, envelope)| envelope.message);
    let samples: Vec<NodeMessage> = samples.collect();
    (0..MESSAGES).map(move |number| match number % 3 {
        0 => samples::relay(&[number as u8; 300]),
        _ => samples[(number * 7) % samples.len()].clone(),
    })
}

/// Sends all messages of node `me` and receives all messages of node `other`, and checks those that arrive. Returns
/// credits only when nothing arrives, so that senders sometimes run out of credits.
fn exchange(mut carrier: impl NodeTransport, me: NodeId, other: NodeId) {
    let (mut numbers, mut others) = (Sequencer::new(me), Sequencer::new(other));
    let mut followed = SequenceTracker::default();
    let mut outgoing = messages().map(|message| numbers.wrap(message, 0));
    let mut expected = messages().map(|message| others.wrap(message, 0));
    let mut next = outgoing.next();
    let (mut received, mut unfinished) = (0, 0);
    let begin = now();
    while next.is_some() || received < MESSAGES {
        assert!(begin.elapsed() < PATIENCE, "{received} have arrived");
        if let Some(envelope) = next.take() {
            next = match carrier.send(other, envelope) {
                Ok(()) => outgoing.next(),
                Err(NodeTransportFull(envelope)) => {
                    assert!(envelope.message.is_data(), "{envelope:?}");
                    Some(*envelope)
                }
            };
        }
        let Some(envelope) = carrier.receive() else {
            // Nothing has arrived, perhaps because the other node has no credits left.
            (0..unfinished).for_each(|_| carrier.return_credit(other));
            unfinished = 0;
            thread::yield_now();
            continue;
        };
        assert_eq!(
            Some(&envelope),
            expected.next().as_ref(),
            "message {received}"
        );
        received += 1;
        let is_numbered = envelope.message.is_sequenced();
        let arrival = followed.check(envelope.source, envelope.sequence, is_numbered);
        let is_first = received == 1;
        assert_eq!(
            arrival,
            if is_first {
                SequenceCheck::First
            } else {
                SequenceCheck::InOrder
            }
        );
        unfinished += u32::from(envelope.message.is_data());
        assert!(unfinished <= CREDITS, "more data than credits");
    }
    (0..unfinished).for_each(|_| carrier.return_credit(other));
    // Keeps the transport running for a while, so that the last returned credits reach the other node too.
    let end = now() + Duration::from_millis(20);
    while now() < end {
        assert_eq!(carrier.receive(), None);
        thread::yield_now();
    }
}

fn order_once_and_credit<P: Pair>() {
    let (a, b) = P::pair();
    let a = thread::spawn(move || exchange(a, A, B));
    let b = thread::spawn(move || exchange(b, B, A));
    a.join().expect("the thread of A ends");
    b.join().expect("the thread of B ends");
}

fn received(carrier: &mut impl NodeTransport) -> Envelope {
    let begin = now();
    loop {
        match carrier.receive() {
            Some(envelope) => return envelope,
            None => assert!(begin.elapsed() < PATIENCE, "nothing arrives"),
        }
    }
}

fn credits_hold_back_data_alone<P: Pair>() {
    let (mut a, mut b) = P::pair();
    let mut numbers = Sequencer::new(A);
    let mut data = || numbers.wrap(samples::relay(b"x"), 0);
    for _ in 0..CREDITS {
        assert_eq!(a.send(B, data()), Ok(()));
    }
    let held = data();
    assert_eq!(
        a.send(B, held.clone()),
        Err(NodeTransportFull(Box::new(held.clone())))
    );
    let command = samples::instruct("ann", samples::disconnect(1));
    let command = Sequencer::new(A).wrap(command, 0);
    assert_eq!(a.send(B, command.clone()), Ok(()));
    for _ in 0..CREDITS {
        assert!(received(&mut b).message.is_data());
    }
    assert_eq!(received(&mut b), command);
    assert_eq!(
        a.send(B, held.clone()),
        Err(NodeTransportFull(Box::new(held.clone())))
    );
    b.return_credit(A);
    // The returned credit may still be in flight.
    let begin = now();
    while a.send(B, held.clone()).is_err() {
        assert_eq!(a.receive(), None);
        assert!(begin.elapsed() < PATIENCE, "no credit returns");
    }
    assert!(a.send(B, held.clone()).is_err(), "one credit, one message");
    assert_eq!(received(&mut b), held);
}

fn a_gap_shows_by_the_next_message<P: Pair>() {
    let (mut a, mut b) = P::pair();
    let mut numbers = Sequencer::new(A);
    let mut followed = SequenceTracker::default();
    let mut see =
        |envelope: &Envelope| followed.check(A, envelope.sequence, envelope.message.is_sequenced());
    let command = || samples::instruct("ann", samples::disconnect(1));
    assert_eq!(a.send(B, numbers.wrap(command(), 0)), Ok(()));
    assert_eq!(see(&received(&mut b)), SequenceCheck::First);
    assert_eq!(a.send(B, numbers.wrap(command(), 0)), Ok(()));
    for _ in 0..CREDITS {
        assert_eq!(a.send(B, numbers.wrap(samples::relay(b"x"), 0)), Ok(()));
    }
    P::cut(&mut a, &mut b);
    // The first message after the cut is not a command, but its number reveals the lost command.
    // The message needs a credit; the cut has returned all credits.
    assert_eq!(a.send(B, numbers.wrap(samples::relay(b"y"), 0)), Ok(()));
    assert_eq!(see(&received(&mut b)), SequenceCheck::Gap { after: 1 });
    assert_eq!(a.send(B, numbers.wrap(command(), 0)), Ok(()));
    assert_eq!(see(&received(&mut b)), SequenceCheck::InOrder);
}

#[test]
fn lane_order_once_and_credit() {
    order_once_and_credit::<lane::Lane>();
}

#[test]
fn socket_order_once_and_credit() {
    order_once_and_credit::<socket::Socket>();
}

#[test]
fn lane_credit() {
    credits_hold_back_data_alone::<lane::Lane>();
}

#[test]
fn socket_credit() {
    credits_hold_back_data_alone::<socket::Socket>();
}

#[test]
fn lane_gap() {
    a_gap_shows_by_the_next_message::<lane::Lane>();
}

#[test]
fn socket_gap() {
    a_gap_shows_by_the_next_message::<socket::Socket>();
}
