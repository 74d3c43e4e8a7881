//! Commands that record which channels have subscribers on a node.

use redis::{Cmd, Value};
use veche_nodes::engine::channel::Occupancy;

use super::replies::{list, number};
use super::scripts::RedisScript;
use super::session::EngineSession;
use super::shared::SharedPorts;

pub(super) fn command(shared: &SharedPorts, session: &EngineSession, order: &Occupancy) -> Cmd {
    let (keys, node) = (&shared.keys, shared.settings.node);
    let nodes = keys.occupants(&order.channel);
    let (channels, all) = (keys.of_node("on", node), keys.single("on"));
    let EngineSession { scripts, fence, .. } = session;
    let used: [&[u8]; 4] = [&nodes, &channels, &all, &fence.key];
    let mut command = scripts.run(RedisScript::Occupy, &used);
    command.arg(node.to_string()).arg(&*order.channel);
    command.arg(u8::from(order.is_occupied));
    command.arg(u8::from(order.is_repeated)).arg(fence.number);
    command
}

/// Parses the reply of `occupy.lua`: whether the change occupied or vacated the channel in the whole cluster, and the
/// time in milliseconds since 1970. Returns `None` if the reply is malformed.
pub(super) fn outcome(reply: Value) -> Option<(bool, u64)> {
    let mut parts = list(reply)?;
    let is_changed = number(&parts.next()?)? == 1;
    let at_ms = u64::try_from(number(&parts.next()?)?).ok()?;
    Some((is_changed, at_ms))
}
