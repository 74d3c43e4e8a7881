//! The port to the engine.

use veche_config::RedisEngine;
use veche_nodes::NodeId;
use veche_outbound::Outbound;

use super::Port;

pub(crate) fn open(
    _outbound: &Outbound,
    _redis: &RedisEngine,
    _id: NodeId,
    _wake: impl Fn() + Send + Sync + 'static,
) -> Result<Port, String> {
    Err("no engine".to_owned())
}
