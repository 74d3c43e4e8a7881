//! What is said on the control socket: a line of JSON there, a line back.
//!
//! A request is `{"version":1,"command":"status"}`. An answer has `"ok": true` and more members, or `"ok": false`
//! and an `"error"`. `dump` and `log` come with a descriptor (`SCM_RIGHTS`). Both ends take their words from here: `client` in
//! the supervisor, `cli::control` in the commands.

use serde::{Deserialize, Serialize};

use crate::message::{DecisionFilter, DumpRequest};

/// Version of requests and answers.
pub const VERSION: u32 = 1;
/// Longest answer line. The supervisor keeps no more for a client, and a client reads no more.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A request line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControlRequest {
    /// [`VERSION`].
    pub version: u32,
    /// What is asked for.
    pub command: ControlCommand,
    /// With `stop`: without draining.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
    /// With `dump`: of what, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump: Option<DumpRequest>,
    /// With `log`: about whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<DecisionFilter>,
}

impl ControlRequest {
    /// A request of this version.
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

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlCommand {
    /// How it goes; answered with `"status": {…}`.
    Status,
    /// Write the rows of a table to the descriptor that comes with the request; answered when the server process has it.
    Dump,
    /// Write decisions about clients to the descriptor that comes with the request, until its reader is gone.
    Log,
    /// Load the config file anew; answered when it is in force, or why not.
    Reload,
    /// Start the program that is installed by now, and have it take over; answered when it serves, or why not.
    Upgrade,
    /// Start another server process with the config as it is now, and have it take over; answered as `Upgrade` is.
    Restart,
    /// Drain and exit; answered at once, and the connection ends with the supervisor.
    Stop,
}
