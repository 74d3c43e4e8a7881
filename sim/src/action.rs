//! The actions of a simulated world as plain data. A list of actions and a seed determine everything that happens.
//!
//! An action is valid whatever happened before. It selects a client, link or channel by an arbitrary number, taken
//! modulo the number of existing ones. So any sublist is valid, and a failing list can be shortened by removing
//! actions.

use fastrand::Rng;

use crate::api_client::BackEndCall;
use crate::channels::CHANNELS;
use crate::setup::{Setup, Weights, pick};
use crate::stall::{STALLS, Stall};

/// An action. `salt` is the seed of random choices within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Every worker has a turn, in random order, and the network moves some bytes everywhere.
    Round { salt: u32 },
    /// One worker has a turn.
    Turn { worker: u8, salt: u32 },
    /// Bytes of a client arrive at the server.
    Up { link: u8, bytes: u16 },
    /// Bytes of the server arrive at a client.
    Down { link: u8, bytes: u16 },
    /// The clock advances by this many milliseconds.
    Advance { ms: u32 },
    /// Everything in flight arrives, and the clock advances until idempotency keys have expired.
    Pause,
    /// A client without a connection connects.
    Connect { client: u8, worker: u8 },
    /// A listener without a connection connects.
    Listen { listener: u8, worker: u8 },
    /// A back end calls the API on its own connection.
    Call {
        caller: u8,
        worker: u8,
        channel: u8,
        call: BackEndCall,
    },
    /// A client subscribes, with its last position if it has one.
    Subscribe { client: u8, channel: u8 },
    /// A client unsubscribes from a channel.
    Unsubscribe { client: u8, channel: u8 },
    /// A client publishes to a channel, with a payload padded to a length.
    Publish { client: u8, channel: u8, pad: u16 },
    /// The back end publishes several times.
    Push {
        worker: u8,
        channel: u8,
        pad: u16,
        times: u8,
    },
    /// The back end repeats its last publication to a channel, or an earlier one, as if the answer had been lost.
    PublishAgain { channel: u8, is_older: bool },
    /// The back end reads a channel's history.
    ReadHistory {
        worker: u8,
        channel: u8,
        limit: u8,
        is_reverse: bool,
    },
    /// The back end removes a channel's history.
    Clear { worker: u8, channel: u8 },
    /// A client requests the presence of a channel.
    Presence { client: u8, channel: u8 },
    /// A client reads a channel's history.
    History { client: u8, channel: u8 },
    /// A client or a listener starts to read what it is sent, or stops. `client` numbers both: the clients come first,
    /// then the listeners.
    SetReading { client: u8, reads: bool },
    /// A connection is cut; each side may notice or not.
    Cut {
        link: u8,
        client_sees: bool,
        server_sees: bool,
    },
    /// A client closes its WebSocket.
    Close { client: u8 },
    /// The back end disconnects a user.
    Disconnect { worker: u8, user: u8 },
    /// A client calls an RPC method.
    Rpc { client: u8 },
    /// One of the open hook requests is answered.
    Decide { request: u8, salt: u32 },
    /// A log writes some of its queued batches.
    Commit { worker: u8, batches: u8 },
    /// An application opens a connection to another server.
    Dial { worker: u8, salt: u32 },
    /// A server to which an application has connected sends a message, or closes the connection.
    ServerSend { server: u8, closes: bool },
    /// A client posts an invalid emulation request for another client's session.
    Forge { client: u8, victim: u8, how: u8 },
    /// The server process shuts down within the given time, and another one starts.
    Drain {
        within_ms: u16,
        is_replaced: bool,
        salt: u32,
    },
    /// The server process crashes, and another one starts.
    Crash { salt: u32 },
    /// A component stalls for many rounds, and everything independent of it must make progress.
    Stall { what: Stall, worker: u8, salt: u32 },
    /// Everything in flight arrives; with `is_long` timeouts pass as well. Then all invariants at rest are checked. With
    /// `has_slow`, clients that don't read stay that way, and all others must make progress.
    Settle { is_long: bool, has_slow: bool },
}

/// Generates `count` random actions for a world.
pub(crate) fn actions(setup: &Setup, count: usize) -> Vec<Action> {
    let mut random = Rng::with_seed(setup.seed);
    (0..count).map(|_| next(&mut random, setup)).collect()
}

fn next(random: &mut Rng, setup: &Setup) -> Action {
    let weights = &setup.weights;
    let kinds = weighted_actions(weights);
    let sum = kinds.iter().map(|(weight, _)| weight).sum();
    let mut left = random.u32(0..sum);
    for (weight, make) in kinds {
        if left < weight {
            return make(random, setup);
        }
        left -= weight;
    }
    Action::Settle {
        is_long: false,
        has_slow: false,
    }
}

/// A time in milliseconds after which the hub has dropped all idempotency keys.
pub(crate) const PAUSE_MS: u64 = 301_000;

type Make = fn(&mut Rng, &Setup) -> Action;

/// Returns every kind of action with its weight.
fn weighted_actions(weights: &Weights) -> [(u32, Make); 32] {
    [
        (weights.round, |r, _| Action::Round { salt: r.u32(..) }),
        (weights.turn, |r, _| Action::Turn {
            worker: r.u8(..),
            salt: r.u32(..),
        }),
        (weights.carry, |r, _| Action::Up {
            link: r.u8(..),
            bytes: some_bytes(r),
        }),
        (weights.carry, |r, _| Action::Down {
            link: r.u8(..),
            bytes: some_bytes(r),
        }),
        (weights.advance, |r, _| {
            let most = if r.u8(0..4) == 0 { 4_000 } else { 200 };
            Action::Advance { ms: r.u32(1..most) }
        }),
        (weights.pause, |_, _| Action::Pause),
        (weights.connect, |r, _| Action::Connect {
            client: r.u8(..),
            worker: r.u8(..),
        }),
        (weights.listen, |r, _| Action::Listen {
            listener: r.u8(..),
            worker: r.u8(..),
        }),
        (weights.call, |r, setup| Action::Call {
            caller: r.u8(..),
            worker: r.u8(..),
            channel: some_channel(r),
            call: some_call(r, setup),
        }),
        (weights.subscribe, |r, _| Action::Subscribe {
            client: r.u8(..),
            channel: some_channel(r),
        }),
        (weights.unsubscribe, |r, _| Action::Unsubscribe {
            client: r.u8(..),
            channel: some_channel(r),
        }),
        (weights.publish, |r, setup| Action::Publish {
            client: r.u8(..),
            channel: some_channel(r),
            pad: r.u16(0..=setup.pad_max),
        }),
        (weights.push, |r, setup| Action::Push {
            worker: r.u8(..),
            channel: some_channel(r),
            pad: r.u16(0..=setup.pad_max),
            times: if r.u8(0..8) == 0 { r.u8(2..12) } else { 1 },
        }),
        (weights.push / 8, |r, _| Action::PublishAgain {
            channel: some_channel(r),
            is_older: r.bool(),
        }),
        (weights.ask, |r, _| Action::ReadHistory {
            worker: r.u8(..),
            channel: some_channel(r),
            limit: r.u8(..),
            is_reverse: r.bool(),
        }),
        (weights.clear, |r, _| Action::Clear {
            worker: r.u8(..),
            channel: some_channel(r),
        }),
        (weights.ask, |r, _| Action::Presence {
            client: r.u8(..),
            channel: some_channel(r),
        }),
        (weights.ask, |r, _| Action::History {
            client: r.u8(..),
            channel: some_channel(r),
        }),
        (weights.read, |r, _| Action::SetReading {
            client: r.u8(..),
            reads: r.u8(0..3) == 0,
        }),
        (weights.cut, |r, _| Action::Cut {
            link: r.u8(..),
            client_sees: r.bool(),
            server_sees: r.bool(),
        }),
        (weights.cut, |r, _| Action::Close { client: r.u8(..) }),
        (weights.kick, |r, _| Action::Disconnect {
            worker: r.u8(..),
            user: r.u8(..),
        }),
        (weights.commit, |r, _| Action::Commit {
            worker: r.u8(..),
            batches: r.u8(1..4),
        }),
        (weights.rpc, |r, _| Action::Rpc { client: r.u8(..) }),
        (weights.decide, |r, _| Action::Decide {
            request: r.u8(..),
            salt: r.u32(..),
        }),
        (weights.dial, |r, _| Action::Dial {
            worker: r.u8(..),
            salt: r.u32(..),
        }),
        (weights.say, |r, _| Action::ServerSend {
            server: r.u8(..),
            closes: r.u8(0..12) == 0,
        }),
        (weights.forge, |r, _| Action::Forge {
            client: r.u8(..),
            victim: r.u8(..),
            how: r.u8(..),
        }),
        (weights.drain, |r, _| Action::Drain {
            within_ms: *pick(r, &[0, 400, 2_000, 10_000]),
            is_replaced: r.bool(),
            salt: r.u32(..),
        }),
        (weights.crash, |r, _| Action::Crash { salt: r.u32(..) }),
        (weights.stall, |r, _| Action::Stall {
            what: *pick(r, &STALLS),
            worker: r.u8(..),
            salt: r.u32(..),
        }),
        (weights.settle, |r, _| Action::Settle {
            is_long: r.u8(0..4) == 0,
            has_slow: r.u8(0..3) == 0,
        }),
    ]
}

/// Prefers the first channels, so that much happens in them.
fn some_channel(random: &mut Rng) -> u8 {
    random.u8(0..CHANNELS.len() as u8).min(random.u8(..))
}

fn some_call(random: &mut Rng, setup: &Setup) -> BackEndCall {
    match random.u8(0..40) {
        0..4 => BackEndCall::History,
        4..8 => BackEndCall::Presence,
        8 => BackEndCall::RemoveHistory,
        9 => BackEndCall::Disconnect,
        10 => BackEndCall::Channels,
        11 => BackEndCall::Connections,
        12 => BackEndCall::UserStatus,
        13..16 => BackEndCall::Batch(random.u32(..)),
        _ => BackEndCall::Publish(random.u16(0..=setup.pad_max)),
    }
}

fn some_bytes(random: &mut Rng) -> u16 {
    match random.u8(0..4) {
        0 => random.u16(1..8),
        1 => random.u16(1..200),
        _ => u16::MAX,
    }
}
