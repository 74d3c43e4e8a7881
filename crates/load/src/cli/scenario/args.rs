//! The flags of `bench scenario`.

use std::path::PathBuf;

use clap::Args;

use super::url_override::UrlBase;

/// Flags of `bench scenario`.
#[derive(Args, Debug)]
pub(in super::super) struct ScenarioArgs {
    /// The file with the phases and objectives; see docs/guide/scenarios.md
    pub(super) file: PathBuf,
    /// Use this scheme, host and port for each "url" of the file, such as wss://staging.example.org; paths stay
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<UrlBase>,
    /// The same for each "publish"; twice if some are tcp:// and others not
    #[arg(long, value_name = "URL")]
    pub(super) publish: Vec<UrlBase>,
    /// The server's process: adds CPU time and memory of it and its children
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,
    /// A name for this run, for comparisons
    #[arg(long, value_name = "NAME")]
    pub(super) label: Option<String>,
    /// Print every figure of each phase instead of a line
    #[arg(long, conflicts_with = "json")]
    pub(super) full: bool,
    /// Print the report as one JSON object and nothing else
    #[arg(long)]
    pub(super) json: bool,
    /// Write the report as an HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the timelines of the phases as CSV, a line per second
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
}
