//! Guarantees of the simulated network that other drivers do not have: its clock, its idle time,
//! and its seed.

use super::*;

const PEER: ([u8; 4], u16) = ([192, 0, 2, 1], 1234);

/// Echoes input and records events.
struct Bench {
    net: Simulated,
    events: Vec<String>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let mut net = Simulated::new(Options::default(), seed, 1000).expect("a waker");
        net.add_listener();
        Self {
            net,
            events: Vec::new(),
        }
    }

    fn dial(&mut self) -> ConnectionId {
        self.net.dial(ListenerId(0), PEER.into())
    }

    /// Runs turns until no events are left. Returns the time at which the next timer is due.
    fn rest(&mut self) -> u64 {
        for _ in 0..1000 {
            let events = &mut self.events;
            self.net
                .turn(None, &mut |net, event| match event {
                    DriverEvent::Received { id, bytes } => {
                        events.push(format!("{} {}", id.index, String::from_utf8_lossy(bytes)));
                        let echo = bytes.to_vec();
                        if let Some(Buffer::Owned(echo)) = net.send(id, echo.into(), false) {
                            assert!(!echo.is_empty());
                        }
                    }
                    DriverEvent::Closed { id, reason } => {
                        events.push(format!("{} closed {reason:?}", id.index))
                    }
                    DriverEvent::Ended { id } => {
                        events.push(format!("{} ended", id.index));
                        net.close(id);
                    }
                    DriverEvent::Connected { id } => events.push(format!("{} connected", id.index)),
                    DriverEvent::Timer { id } => events.push(format!("{} timer", id.index)),
                    DriverEvent::Drained { id } => events.push(format!("{} drained", id.index)),
                    _ => {}
                })
                .expect("a turn");
            if let Some(until_ms) = self.net.idle_until_ms() {
                return until_ms;
            }
        }
        panic!("it never rests");
    }
}

#[test]
fn writes_arrive_in_order_and_replies_can_be_read_after_fin() {
    let mut bench = Bench::new(1);
    let id = bench.dial();
    bench.net.write(id, b"a".to_vec());
    bench.net.write(id, b"b".to_vec());
    bench.net.finish(id);
    assert_eq!(bench.rest(), u64::MAX);
    assert_eq!(
        bench.events,
        ["0 a", "0 b", "0 ended", "0 closed Requested"]
    );
    let mut read = Vec::new();
    assert_eq!(bench.net.read(id, &mut read), RemoteState::Closed);
    assert_eq!(read, b"ab");
    // The index is reused, but the id is not.
    let next = bench.dial();
    assert_eq!((next.index, next == id), (0, false));
    bench.net.write(id, b"stale".to_vec());
    bench.rest();
    assert_eq!(bench.events.len(), 4);
}

#[test]
fn timers_fire_when_the_clock_is_moved_there() {
    let mut bench = Bench::new(1);
    let ids = [bench.dial(), bench.dial()];
    assert_eq!(bench.rest(), u64::MAX);
    bench.net.set_timer(ids[0], 1500);
    bench.net.set_timer(ids[1], 1200);
    assert_eq!(bench.rest(), 1200);
    bench.net.set_now_ms(1199);
    assert_eq!((bench.rest(), bench.events.len()), (1200, 0));
    bench.net.set_now_ms(1200);
    assert_eq!(bench.rest(), 1500);
    assert_eq!(bench.events, ["1 timer"]);
    bench.net.clear_timer(ids[0]);
    assert_eq!(bench.rest(), u64::MAX);
}

#[test]
fn a_peer_that_does_not_read_holds_sends_back() {
    let mut bench = Bench::new(1);
    let id = bench.dial();
    bench.net.set_reading(id, false);
    bench.net.write(id, vec![b'x'; 40_000]);
    bench.rest();
    assert_eq!(bench.net.unsent(id), 40_000);
    let mut read = Vec::new();
    bench.net.read(id, &mut read);
    assert!(read.is_empty());
    bench.net.set_reading(id, true);
    bench.rest();
    bench.net.read(id, &mut read);
    assert_eq!((read.len(), bench.net.unsent(id)), (40_000, 0));
    assert_eq!(bench.events.last().map(String::as_str), Some("0 drained"));
}

#[test]
fn a_reset_and_a_connection_to_nowhere_end() {
    let mut bench = Bench::new(1);
    let id = bench.dial();
    bench.rest();
    bench.net.write(id, b"lost".to_vec());
    bench.net.reset(id);
    bench.rest();
    let id = bench.net.connect(PEER.into()).expect("a transport");
    bench.rest();
    assert_eq!(bench.events, ["0 closed Reset"], "the peer was silent");
    assert_eq!(bench.net.take_dials(), [(id, PEER.into())]);
    bench.net.refuse_dial(id);
    bench.rest();
    assert_eq!(bench.events, ["0 closed Reset", "0 closed Refused"]);
}

#[test]
fn a_dial_connects_once_it_is_accepted() {
    let mut bench = Bench::new(1);
    let id = bench.net.connect(PEER.into()).expect("a transport");
    bench.net.write(id, b"early".to_vec());
    bench.rest();
    assert!(bench.events.is_empty(), "not connected: nothing is heard");
    assert_eq!(bench.net.take_dials(), [(id, PEER.into())]);
    bench.net.accept_dial(id);
    bench.net.accept_dial(id);
    bench.rest();
    assert_eq!(bench.events, ["0 connected", "0 early"]);
    let mut read = Vec::new();
    bench.net.read(id, &mut read);
    assert_eq!(read, b"early");
    assert!(bench.net.take_dials().is_empty());
}

/// Returns the order in which ten transports are served whose peers write at the same time.
fn order(seed: u64) -> Vec<String> {
    let mut bench = Bench::new(seed);
    let ids: Vec<ConnectionId> = (0..10).map(|_| bench.dial()).collect();
    bench.rest();
    for text in ["a", "b", "c"] {
        for id in &ids {
            bench.net.write(*id, text.into());
        }
    }
    bench.rest();
    bench.events
}

#[test]
fn the_seed_decides_the_order_between_transports_not_within_one() {
    assert_eq!(order(7), order(7));
    assert_ne!(order(7), order(8));
    for seed in 0..50 {
        let events = order(seed);
        assert_eq!(events.len(), 30);
        for index in 0..10 {
            let own = format!("{index} ");
            let texts: Vec<&str> = events
                .iter()
                .filter_map(|line| line.strip_prefix(&own))
                .collect();
            assert_eq!(texts, ["a", "b", "c"], "seed {seed}");
        }
    }
}

#[test]
fn a_paused_listener_keeps_dials_waiting() {
    let mut bench = Bench::new(1);
    bench.net.pause_accept(ListenerId(0));
    let id = bench.dial();
    bench.net.write(id, b"a".to_vec());
    assert_eq!(bench.rest(), u64::MAX);
    assert!(bench.events.is_empty());
    bench.net.resume_accept(ListenerId(0));
    bench.rest();
    assert_eq!(bench.events, ["0 a"]);
}

/// A ready transport waits for a limited number of turns, however much other peers send.
#[test]
fn a_ready_transport_is_served_within_a_bounded_number_of_turns() {
    for seed in 0..50 {
        let mut bench = Bench::new(seed);
        let floods: Vec<_> = (0..20).map(|_| bench.dial()).collect();
        let quiet = bench.dial();
        bench.rest();
        let (mut asked, mut longest) = (None, 0);
        for turn in 0..500 {
            floods
                .iter()
                .for_each(|id| bench.net.write(*id, vec![b'f'; 10]));
            if asked.is_none() {
                bench.net.write(quiet, b"?".to_vec());
                asked = Some(turn);
            }
            let mut is_received = false;
            let mut sink = |_: &mut Simulated, event: DriverEvent<'_>| {
                is_received |= matches!(event, DriverEvent::Received { id, .. } if id == quiet);
            };
            bench.net.turn(Some(0), &mut sink).expect("a turn");
            if is_received && let Some(since) = asked.take() {
                longest = longest.max(turn - since);
            }
        }
        assert!(
            longest <= u32::from(SKIPPED_MAX),
            "seed {seed}: {longest} turns"
        );
    }
}

#[test]
fn sends_beyond_the_room_leave_in_parts() {
    let options = Options {
        low_water_bytes: 12,
        ..Options::default()
    };
    let mut net = Simulated::without_choice(options, 1000).expect("a waker");
    net.add_listener();
    let id = net.dial(ListenerId(0), PEER.into());
    net.set_room(id, 4);
    let turn = |net: &mut Simulated, more: usize| {
        net.make_room(id, more);
        let mut events = Vec::new();
        net.turn(Some(0), &mut |net, event| {
            events.push(match event {
                DriverEvent::Accepted { .. } => "accepted".to_owned(),
                DriverEvent::Sent { buffer, .. } => format!("sent {}", buffer.len()),
                DriverEvent::Progressed { .. } => format!("progressed {}", net.unsent(id)),
                DriverEvent::Drained { .. } => format!("drained {}", net.unsent(id)),
                other => format!("{other:?}"),
            });
        })
        .expect("a turn");
        events
    };
    assert_eq!(turn(&mut net, 0), ["accepted"]);
    assert!(net.has_delivered());
    for _ in 0..3 {
        assert!(net.send(id, vec![b'x'; 10].into(), false).is_none());
    }
    assert_eq!(net.unsent(id), 26);
    net.shutdown(id);
    assert!(turn(&mut net, 0).is_empty() && !net.has_delivered());
    assert_eq!(turn(&mut net, 3), ["progressed 23"]);
    assert_eq!(turn(&mut net, 9), ["sent 10"]);
    let mut read = Vec::new();
    assert_eq!(net.read(id, &mut read), RemoteState::Open);
    assert_eq!(turn(&mut net, 2), ["drained 12"]);
    assert_eq!(turn(&mut net, 100), ["sent 10", "sent 10"]);
    assert_eq!(net.read(id, &mut read), RemoteState::Ended);
    assert_eq!((read.len(), net.unsent(id)), (30, 0));
}

#[test]
fn without_a_seed_transports_are_served_in_index_order() {
    let mut net = Simulated::without_choice(Options::default(), 1000).expect("a waker");
    net.add_listener();
    let ids: Vec<ConnectionId> = (0..10)
        .map(|_| net.dial(ListenerId(0), PEER.into()))
        .collect();
    for id in ids.iter().rev() {
        net.write(*id, b"a".to_vec());
        net.set_timer(*id, 1000);
    }
    let (mut received, mut fired) = (Vec::new(), Vec::new());
    net.turn(Some(0), &mut |_, event| match event {
        DriverEvent::Received { id, .. } => received.push(id),
        DriverEvent::Timer { id } => fired.push(id),
        _ => {}
    })
    .expect("a turn");
    assert_eq!((received, fired), (ids.clone(), ids));
}
