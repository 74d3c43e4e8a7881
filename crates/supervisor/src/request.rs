//! The protocol of the control socket: the client sends one line of JSON, and the supervisor answers with one line.
//!
//! A request is `{"version":1,"command":"status"}`. A response has `"ok": true` and further members, or `"ok": false` and an
//! `"error"`. `dump` and `log` include a descriptor (`SCM_RIGHTS`). The supervisor's `client` and the commands' `cli::control`
//! share these types.

use serde::{Deserialize, Serialize};

use crate::message::{DecisionFilter, DumpRequest};

/// The version of requests and responses.
pub const VERSION: u32 = 1;
/// The longest response line in bytes that the supervisor sends and that clients accept.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A request of a client of the control socket: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControlRequest {
    /// The client's [`VERSION`]; the supervisor rejects versions other than its own.
    pub version: u32,
    /// The command that the supervisor executes.
    pub command: ControlCommand,
    /// For `stop`: whether to kill the server process instead of draining.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
    /// For `dump`: the table and format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump: Option<DumpRequest>,
    /// For `log`: the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<DecisionFilter>,
}

impl ControlRequest {
    /// Creates a request with the current protocol [`VERSION`].
    pub fn new(command: ControlCommand) -> Self {
        Self {
            version: VERSION,
            command,
            now: false,
            dump: None,
            log: None,
        }
    }
}

/// The commands of the control socket, in snake case in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlCommand {
    /// Returns the state as `"status": {…}`.
    Status,
    /// Writes the rows of a table to the request's descriptor; answered once the request was sent to the server process.
    Dump,
    /// Writes decisions about clients to the request's descriptor until its reader is gone.
    Log,
    /// Reloads the configuration file; answered once the configuration is in force, or with the
    /// reason for its rejection.
    Reload,
    /// Upgrades to the installed program; answered when the new server process serves, or with the reason for the failure.
    Upgrade,
    /// Replaces the server process by a new one with the current configuration file; answered when the new server
    /// process serves, or with the reason for the failure.
    Restart,
    /// Drains the server and ends the supervisor. Answered at once; the connection stays open until the supervisor ends.
    Stop,
}
