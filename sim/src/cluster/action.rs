//! The actions of a cluster as plain data. As in other worlds, any part of a list of actions is valid: numbers are
//! taken modulo the number of existing things, and impossible actions do nothing.

use fastrand::Rng;

use super::setup::Setup;

/// An action. `salt` is the seed of random choices within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Some messages in flight arrive, and some lost connections are restored.
    Round { salt: u32 },
    /// The clock advances for all nodes.
    Advance { ms: u16 },
    /// A client subscribes on this node, with its position if it has one.
    Subscribe { client: u8, channel: u8, node: u8 },
    /// A client ends a subscription.
    Unsubscribe { client: u8, channel: u8 },
    /// A client closes its connection.
    Disconnect { client: u8 },
    /// A back end publishes through this node.
    Publish {
        node: u8,
        channel: u8,
        is_keyed: bool,
        times: u8,
    },
    /// A back end repeats the publications that have an idempotency key and an unknown outcome.
    Retry { node: u8 },
    /// A back end removes the history of a channel.
    RemoveHistory { node: u8, channel: u8 },
    /// A back end bans a user.
    Ban { node: u8 },
    /// A node loses its connection for commands or the connection of a feed, or a feed becomes silent without an error.
    Lose { node: u8, salt: u32 },
    /// A node loses its connections to the store, and can't open new ones.
    CutOff { node: u8 },
    /// A node can reach the store again.
    Heal { node: u8 },
    /// Messages in flight to a node and from it stop, or continue.
    Stall { node: u8, is_stalled: bool },
    /// A node ends, and another node takes its place.
    Crash { node: u8 },
    /// The store is copied: to a file, or to a replica that lags behind.
    Copy,
    /// The store restarts and has lost nothing.
    Restart,
    /// The store restarts from the last copy.
    RestartOld,
    /// The store restarts empty.
    RestartEmpty,
    /// The replica becomes the store. Some connections lead to the old server for a while.
    Promote { salt: u32 },
    /// The store is emptied while it runs.
    Flush,
    /// The store drops the publications of a channel, or its position if `is_position`.
    Evict { channel: u8, is_position: bool },
    /// From now on, the store refuses commands if `is_refusing`, and otherwise executes them.
    Refuse { is_refusing: bool },
    /// All faults end, and all messages in flight arrive.
    Settle,
}

/// The weight of an action, and whether it is harmless. In worlds in which nothing may be lost,
/// only harmless actions occur.
struct Row {
    weight: u32,
    is_harmless: bool,
    make: fn(&mut Rng) -> Action,
}

const fn row(weight: u32, is_harmless: bool, make: fn(&mut Rng) -> Action) -> Row {
    Row {
        weight,
        is_harmless,
        make,
    }
}

const ROWS: [Row; 24] = [
    row(400, true, |r| Action::Round { salt: r.u32(..) }),
    row(80, true, |r| Action::Advance {
        ms: r.u16(1..1_500),
    }),
    row(120, true, |r| Action::Subscribe {
        client: r.u8(..),
        channel: r.u8(..),
        node: r.u8(..),
    }),
    row(20, true, |r| Action::Unsubscribe {
        client: r.u8(..),
        channel: r.u8(..),
    }),
    row(30, true, |r| Action::Disconnect { client: r.u8(..) }),
    row(150, true, |r| Action::Publish {
        node: r.u8(..),
        channel: r.u8(..),
        is_keyed: r.bool(),
        times: r.u8(1..4),
    }),
    row(40, true, |r| Action::Retry { node: r.u8(..) }),
    row(6, true, |r| Action::Ban { node: r.u8(..) }),
    row(25, true, |r| Action::Lose {
        node: r.u8(..),
        salt: r.u32(..),
    }),
    row(8, true, |r| Action::Stall {
        node: r.u8(..),
        is_stalled: true,
    }),
    row(12, true, |r| Action::Stall {
        node: r.u8(..),
        is_stalled: false,
    }),
    row(4, true, |r| Action::Crash { node: r.u8(..) }),
    row(4, true, |_| Action::Restart),
    row(4, true, |_| Action::Settle),
    row(8, false, |r| Action::CutOff { node: r.u8(..) }),
    row(12, false, |r| Action::Heal { node: r.u8(..) }),
    row(4, false, |r| Action::RemoveHistory {
        node: r.u8(..),
        channel: r.u8(..),
    }),
    row(12, false, |_| Action::Copy),
    row(3, false, |_| Action::RestartOld),
    row(1, false, |_| Action::RestartEmpty),
    row(4, false, |r| Action::Promote { salt: r.u32(..) }),
    row(2, false, |_| Action::Flush),
    row(4, false, |r| Action::Evict {
        channel: r.u8(..),
        is_position: r.bool(),
    }),
    row(8, false, |r| Action::Refuse {
        is_refusing: r.u8(..4) == 0,
    }),
];

/// Returns the actions of a world.
pub(super) fn actions(setup: &Setup, count: usize) -> Vec<Action> {
    let random = &mut Rng::with_seed(setup.seed ^ 0xac71_0115);
    let rows: Vec<_> = ROWS
        .iter()
        .filter(|row| row.is_harmless || setup.can_lose)
        .collect();
    let sum: u32 = rows.iter().map(|row| row.weight).sum();
    let next = |_| {
        let mut left = random.u32(..sum);
        for row in &rows {
            match left.checked_sub(row.weight) {
                Some(rest) => left = rest,
                None => return (row.make)(random),
            }
        }
        Action::Settle
    };
    (0..count).map(next).collect()
}
