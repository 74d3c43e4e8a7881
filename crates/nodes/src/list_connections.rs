//! Which connections there are: asked by a back end of one worker, and told by all of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Caller, wire};

/// Who hears a channel, which may be a user's own. Every worker says it of its connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListConnections {
    /// Which channel.
    #[serde(with = "wire::text")]
    pub channel: Arc<str>,
    /// Only clients that call themselves so.
    pub name: Option<Box<str>>,
    /// Whose the answer is.
    pub caller: Caller,
}
