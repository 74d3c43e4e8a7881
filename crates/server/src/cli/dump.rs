//! `veche dump`: prints the rows of a table of the running server.
//!
//! The request carries one end of a socket pair, to which the server process writes the rows ([`crate::dump`]).

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use veche_supervisor::message::DumpRequest;
use veche_supervisor::request::{ControlCommand, ControlRequest};
use veche_terminal::exit::{CommandFailure, Exit, print, written};

use super::control::{self, ControlArgs, ControlTarget};
use super::status;
use crate::dump::{ReceiveError, receive};

/// How long to wait for the first rows, which the server sends at once if it supports dumps.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// Flags of `veche dump`.
#[derive(Args, Debug)]
pub(super) struct DumpArgs {
    /// The table's name in veche.table
    #[arg(value_name = "TABLE")]
    table: Option<String>,
    /// Print CSV with a header (RFC 4180) instead of a JSON object per line (NDJSON)
    #[arg(long, requires = "table")]
    csv: bool,
    /// Order by this index instead of the key
    #[arg(long, value_name = "INDEX", requires = "table")]
    index: Option<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "ROWS", requires = "table")]
    limit: Option<u64>,
    #[command(flatten)]
    control: ControlArgs,
}

pub(super) fn run(file: &Path, args: DumpArgs) -> Result<(), CommandFailure> {
    let control = control::find(file, args.control.control)?;
    let Some(table) = args.table else {
        return list(&control);
    };
    let wanted = DumpRequest {
        table,
        csv: args.csv,
        index: args.index,
        limit: args.limit,
    };
    dump(&control, wanted)
}

/// Prints name, rows and bytes of each table.
fn list(control: &ControlTarget) -> Result<(), CommandFailure> {
    let answer = control.ask(ControlCommand::Status)?;
    let status = &answer["status"];
    if let Some(why) = status["report_error"].as_str() {
        let why = format!("no report from the server process: {why}");
        return Err(CommandFailure::new(Exit::NoServer, why));
    }
    let tables: Vec<(String, String)> = status::tables(&status["report"]).collect();
    let width = tables.iter().map(|(name, _)| name.chars().count()).max();
    let width = width.unwrap_or(0);
    let lines = tables
        .iter()
        .map(|(name, text)| format!("{name:<width$}  {text}\n"));
    print(format_args!("{}", lines.collect::<String>()))
}

fn dump(control: &ControlTarget, wanted: DumpRequest) -> Result<(), CommandFailure> {
    let pair = UnixStream::pair();
    let (ours, theirs) =
        pair.map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))?;
    let request = ControlRequest {
        dump: Some(wanted),
        ..ControlRequest::new(ControlCommand::Dump)
    };
    control.open_with(&request, Some(theirs.into()))?;
    let mut rows = RowSource::from(ours)
        .map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))?;
    let end = match receive(&mut rows, &mut io::stdout().lock()) {
        Ok(end) => end,
        Err(ReceiveError::Sink(error)) => return written(Err(error)),
        Err(ReceiveError::Source(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(CommandFailure::new(
                Exit::NoServer,
                "the server process ended before all rows were written",
            ));
        }
        Err(ReceiveError::Source(error)) => {
            let why = format!("the server process can't write rows: {error}");
            return Err(CommandFailure::new(Exit::NoServer, why));
        }
    };
    match end.error {
        None => Ok(()),
        Some(why) => Err(CommandFailure::new(Exit::Refused, why)),
    }
}

/// Reads rows: the first within [`FIRST_WAIT`], the others without a time limit.
struct RowSource {
    socket: UnixStream,
    is_first: bool,
}

impl RowSource {
    fn from(socket: UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(FIRST_WAIT))?;
        Ok(Self {
            socket,
            is_first: true,
        })
    }
}

impl Read for RowSource {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(bytes)?;
        if self.is_first {
            self.is_first = false;
            self.socket.set_read_timeout(None)?;
        }
        Ok(count)
    }
}
