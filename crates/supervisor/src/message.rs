//! The messages between supervisor and server process: one JSON object per line on the control
//! link.
//!
//! The module contains only plain types. `link` transports lines and descriptors; the supervisor and
//! [`process`](crate::process) handle the messages. Both sides log and skip unknown lines, so that the supervisor and the
//! server process may differ by one version during an upgrade. If that is not sufficient for a change, [`VERSION`] is
//! increased.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use veche_terminal::as_ms;

use crate::pulse::StuckWorker;
use crate::restarts::Restarts;

/// The version of the protocol, which both sides send in their first message.
pub(crate) const VERSION: u32 = 2;

/// The prefix of the reason why a server process refuses a reload.
pub const PROCESS_REFUSED: &str = "the server process refused the configuration: ";

/// Messages from the supervisor. The listening sockets precede `StartMessage`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToServer {
    /// The first message: everything that a server process needs.
    Start(StartMessage),
    /// A validated configuration, answered by `Reloaded`.
    Reload {
        /// The id of the request, repeated in the answer.
        id: u64,
        /// The text of the configuration file as read by the supervisor.
        text: String,
        /// The time after which the server process refuses the configuration, in milliseconds of the monotonic clock, which
        /// both processes share.
        #[serde(default)]
        until_ms: Option<u64>,
        /// Whether the socket of a spawner of worker processes precedes the message.
        #[serde(default)]
        has_spawner: bool,
    },
    /// The spawner of worker processes has ended. The socket of a new spawner precedes the message.
    Spawner,
    /// Under `veche dev`: a new configuration was rejected.
    Refused {
        /// The problems that were found, formatted for the developer.
        why: String,
    },
    /// Makes the server process start the services that it held back. Sent when the services of all previous server
    /// processes have ended.
    StartServices,
    /// The log files were moved away and have to be reopened.
    ReopenLogs,
    /// Closes all connections within a time limit, then exits. Unless `replaced` is set, listeners accept new
    /// connections during the drain: push listeners until no clients are left, other listeners until all services have
    /// ended.
    Drain {
        /// The time limit, after which the server process exits regardless.
        within_ms: u64,
        /// The delay before the drain, during which `/health` returns 503.
        #[serde(default)]
        lame_duck_ms: u64,
        /// Whether another server process has taken over, so that clients may reconnect at once.
        #[serde(default)]
        replaced: bool,
    },
    /// Requests the server's figures, which [`ToSupervisor::Status`] returns.
    Status {
        /// The id of the request, repeated in the answer.
        id: u64,
    },
    /// Asks whether workers make progress; answered by `Pulse`.
    Pulse,
    /// Writes the rows of a table to the descriptor that precedes the message.
    Dump(DumpRequest),
    /// Writes decisions about clients to the descriptor that precedes the message, until the reader of that descriptor is gone.
    Watch(DecisionFilter),
}

/// The parameters of `veche dump`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DumpRequest {
    /// The name of the table.
    pub table: String,
    /// Whether rows are written as CSV instead of NDJSON.
    #[serde(default)]
    pub csv: bool,
    /// The index that determines the order; `None`: the key.
    #[serde(default)]
    pub index: Option<String>,
    /// The most rows to write; `None`: all.
    #[serde(default)]
    pub limit: Option<u64>,
}

/// The filter of `veche log`. If no field is set, all decisions match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionFilter {
    /// Only decisions about this user.
    #[serde(default)]
    pub user: Option<String>,
    /// Only decisions about this channel.
    #[serde(default)]
    pub channel: Option<String>,
}

/// The content of the first message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartMessage {
    /// The supervisor's [`VERSION`], which the server process compares with its own.
    pub(crate) version: u32,
    /// The path of the configuration. Messages name it, and relative paths are resolved against its folder.
    pub(crate) config_path: PathBuf,
    /// The text of the configuration in force.
    pub(crate) text: String,
    /// The text of the configuration with which the supervisor started, if another configuration was loaded since.
    /// Directives that need a restart keep the values of this configuration.
    pub(crate) started_text: Option<String>,
    /// Whether the command is `veche dev`.
    #[serde(default)]
    pub(crate) dev: bool,
    /// Whether the supervisor has not checked the configuration, so that the server process has to.
    #[serde(default)]
    pub(crate) is_unjudged: bool,
    /// Whether services of another server process may still be running. If so, this process starts its services only at
    /// `StartServices`.
    #[serde(default)]
    pub(crate) holds_services: bool,
    /// Counts of server processes that ended unexpectedly.
    #[serde(default)]
    pub(crate) restarts: Restarts,
    /// Whether the socket of a spawner of worker processes follows those of the listeners.
    #[serde(default)]
    pub(crate) has_spawner: bool,
    /// For each `[[listen]]` section, in order, how many of the sockets that preceded this message belong to it.
    pub(crate) listeners: Vec<ListenerSockets>,
}

/// A `[[listen]]` section and its sockets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListenerSockets {
    /// The bound address; never port 0.
    pub(crate) address: SocketAddr,
    /// The number of sockets bound to the address.
    pub(crate) sockets: usize,
}

impl ListenerSockets {
    /// Returns whether sockets bound to `bound` match a `[[listen]]` with `wanted`.
    pub(crate) fn are_for(bound: SocketAddr, wanted: SocketAddr) -> bool {
        bound == wanted || wanted.port() == 0 && bound.ip() == wanted.ip()
    }
}

impl ToServer {
    /// Returns the message that drains a replaced process.
    pub(crate) fn drain_replaced(within: Duration) -> Self {
        Self::Drain {
            within_ms: as_ms(within),
            lame_duck_ms: 0,
            replaced: true,
        }
    }

    /// Returns the message that stops the process after `lame_duck`.
    pub(crate) fn drain_to_stop(lame_duck: Duration, within: Duration) -> Self {
        Self::Drain {
            within_ms: as_ms(within),
            lame_duck_ms: as_ms(lame_duck),
            replaced: false,
        }
    }
}

/// Messages from the server process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToSupervisor {
    /// Every worker accepts connections.
    Ready {
        /// The server process's [`VERSION`].
        version: u32,
        /// The version of the server process's program.
        #[serde(default)]
        program: String,
        /// The version of `supervisor::handover` that the server process's program supports.
        #[serde(default)]
        handover: u32,
    },
    /// The spawner of worker processes has ended, and the server process needs another one.
    SpawnerEnded,
    /// All services have ended during a drain, and none will start.
    ServicesEnded,
    /// A server process that can't start sends this before it exits.
    Failed {
        /// One line for the log that tells the operator what to change.
        error: String,
    },
    /// The result of [`ToServer::Reload`].
    Reloaded {
        /// The id of the request.
        id: u64,
        /// Why the old configuration stays in force; `None` if the new one is in force.
        error: Option<String>,
    },
    /// The result of [`ToServer::Status`].
    Status {
        /// The id of the request.
        id: u64,
        /// The figures, which the supervisor passes on unchanged.
        report: serde_json::Value,
    },
    /// The result of [`ToServer::Pulse`].
    Pulse {
        /// The worker that has been in the same turn for the largest number of checks, if any is stuck.
        stuck: Option<StuckWorker>,
    },
}
