//! `veche log`: prints decisions of the running server about a user or a channel as they happen.
//!
//! The request carries one end of a socket pair, to which the server process writes the lines ([`crate::decisions`])
//! until this command ends.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;

use clap::Args;
use veche_supervisor::message::DecisionFilter;
use veche_supervisor::request::{ControlCommand, ControlRequest};
use veche_terminal::exit::{CommandFailure, Exit, written};

use super::control::{self, ControlArgs};

/// The user and the channel to filter by.
#[derive(Args, Debug)]
pub(super) struct LogArgs {
    /// Only decisions about this user
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only decisions about this channel
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    #[command(flatten)]
    control: ControlArgs,
}

/// Prints decisions until the server process or the reader of the output ends.
pub(super) fn run(file: &Path, args: LogArgs) -> Result<(), CommandFailure> {
    let control = control::find(file, args.control.control)?;
    let failed = |error: io::Error| CommandFailure::new(Exit::Failed, error.to_string());
    let (mut ours, theirs) = UnixStream::pair().map_err(failed)?;
    let wanted = DecisionFilter {
        user: args.user,
        channel: args.channel,
    };
    let request = ControlRequest {
        log: Some(wanted),
        ..ControlRequest::new(ControlCommand::Log)
    };
    control.open_with(&request, Some(theirs.into()))?;
    let mut bytes = [0; 16 << 10];
    loop {
        let count = ours.read(&mut bytes).map_err(failed)?;
        if count == 0 {
            let why = "the server process stopped sending log lines: it has ended, or too many commands are reading them";
            return Err(CommandFailure::new(Exit::NoServer, why));
        }
        let mut out = io::stdout().lock();
        let outcome = io::Write::write_all(&mut out, &bytes[..count]);
        let is_over = outcome.is_err();
        written(outcome)?;
        if is_over {
            return Ok(());
        }
    }
}
