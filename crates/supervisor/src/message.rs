//! What supervisor and server process say to each other: one JSON object a line, over the control socket.
//!
//! Plain types. How lines and descriptors travel is `link`'s business, what a message causes is that of
//! the supervisor and of [`process`](crate::process). Either side skips a line it does not know, after a log line, so that
//! a supervisor may be one version away from its server process during an upgrade; [`VERSION`] rises when
//! that is not enough.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use veche_terminal::as_ms;

use crate::pulse::StuckWorker;
use crate::restarts::Restarts;

/// Version of this conversation: said by both sides in their first message.
pub(crate) const VERSION: u32 = 2;

/// The prefix of the reason for which a server process refuses a reload.
pub const PROCESS_REFUSED: &str = "the server process refused it: ";

/// From the supervisor. The listening sockets travel ahead of `StartMessage`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToServer {
    /// The first message: everything that a server process needs.
    Start(StartMessage),
    /// A validated config. Answered by `Reloaded`.
    Reload {
        /// Comes back in the answer.
        id: u64,
        /// The file's text as the supervisor read it.
        text: String,
        /// It is refused from then on, in milliseconds of the monotonic clock, which both processes read.
        #[serde(default)]
        until_ms: Option<u64>,
    },
    /// Under `veche dev`: a new config was refused.
    Refused {
        /// Why.
        why: String,
    },
    /// The services of all processes before have ended: those that `StartMessage` has held back begin.
    StartServices,
    /// Somebody has moved the log files away: go on in new ones.
    ReopenLogs,
    /// Take no more connections, end those that are, then exit.
    Drain {
        /// The server process ends after this time whatever is left.
        within_ms: u64,
        /// The drain begins after this time; `/health` says 503 from now on.
        #[serde(default)]
        lame_duck_ms: u64,
        /// Another server process has taken over: clients may come back at once.
        #[serde(default)]
        replaced: bool,
    },
    /// Asks for figures. Answered by `Status`.
    Status {
        /// Comes back in the answer.
        id: u64,
    },
    /// Asks whether the workers still turn. Answered by `Pulse`.
    Pulse,
    /// Write the rows of a table to the descriptor that travels ahead.
    Dump(DumpRequest),
    /// Write decisions about clients to the descriptor that travels ahead, until its reader is gone.
    Watch(DecisionFilter),
}

/// The rows of a table that `veche dump` asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DumpRequest {
    /// The table's name.
    pub table: String,
    /// As CSV; as NDJSON otherwise.
    #[serde(default)]
    pub csv: bool,
    /// In the order of this index; of the key otherwise.
    #[serde(default)]
    pub index: Option<String>,
    /// Limit on the number of rows.
    #[serde(default)]
    pub limit: Option<u64>,
}

/// The decisions about clients that `veche log` asks for; without names, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionFilter {
    /// Only decisions about this user.
    #[serde(default)]
    pub user: Option<String>,
    /// Only decisions about this channel.
    #[serde(default)]
    pub channel: Option<String>,
}

/// See [`ToServer::StartMessage`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartMessage {
    /// [`VERSION`] of the supervisor.
    pub(crate) version: u32,
    /// Where the text came from: for messages, and for what is relative to it.
    pub(crate) config_path: PathBuf,
    /// The config in force.
    pub(crate) text: String,
    /// The config that the supervisor started with, when another was loaded since: directives that need a
    /// restart keep its values.
    pub(crate) started_text: Option<String>,
    /// It is `veche dev`.
    #[serde(default)]
    pub(crate) dev: bool,
    /// Nobody has judged the config yet: it comes from the file as it is.
    #[serde(default)]
    pub(crate) is_unjudged: bool,
    /// Services of another process may still run: those of this one begin with `StartServices`.
    #[serde(default)]
    pub(crate) holds_services: bool,
    /// How often server processes before this one ended by themselves.
    #[serde(default)]
    pub(crate) restarts: Restarts,
    /// How the sockets that came ahead are dealt out, in the order of `[[listen]]`.
    pub(crate) listeners: Vec<ListenerSockets>,
}

/// One `[[listen]]` and its share of the sockets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListenerSockets {
    /// The address bound: never port 0.
    pub(crate) address: SocketAddr,
    /// How many sockets are bound to it.
    pub(crate) sockets: usize,
}

impl ListenerSockets {
    /// Returns whether sockets that are bound to `bound` are what `[[listen]]` asks for with `wanted`.
    pub(crate) fn are_for(bound: SocketAddr, wanted: SocketAddr) -> bool {
        bound == wanted || wanted.port() == 0 && bound.ip() == wanted.ip()
    }
}

impl ToServer {
    /// Tells a process that another one has replaced to drain.
    pub(crate) fn drain_replaced(within: Duration) -> Self {
        Self::Drain {
            within_ms: as_ms(within),
            lame_duck_ms: 0,
            replaced: true,
        }
    }

    /// Tells the process to drain after `lame_duck`, since the server stops.
    pub(crate) fn drain_to_stop(lame_duck: Duration, within: Duration) -> Self {
        Self::Drain {
            within_ms: as_ms(within),
            lame_duck_ms: as_ms(lame_duck),
            replaced: false,
        }
    }
}

/// From the server process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToSupervisor {
    /// Every worker accepts.
    Ready {
        /// [`VERSION`] of the server process.
        version: u32,
        /// The version of its program.
        #[serde(default)]
        program: String,
        /// What a supervisor of its program can take over: a version of `supervisor::handover`.
        #[serde(default)]
        handover: u32,
    },
    /// In a drain: none of its services runs any more, and none will.
    ServicesEnded,
    /// It can't start, and says why before it exits.
    Failed {
        /// One line to act on.
        error: String,
    },
    /// Answer to `Reload`.
    Reloaded {
        /// The question's.
        id: u64,
        /// Why the old config stays, if it does.
        error: Option<String>,
    },
    /// Answer to `Status`.
    Status {
        /// The question's.
        id: u64,
        /// Figures; the supervisor passes them on without looking.
        report: serde_json::Value,
    },
    /// Answer to `Pulse`.
    Pulse {
        /// The worker that has been in one turn for the most questions, if one has.
        stuck: Option<StuckWorker>,
    },
}
