//! The flags of `bench scenario`.

use std::path::PathBuf;

use clap::Args;

use super::url_override::UrlBase;

/// Flags of `bench scenario`.
#[derive(Args, Debug)]
pub(in super::super) struct ScenarioArgs {
    /// The file with the phases and the promises; see docs/guide/scenarios.md
    pub(super) file: PathBuf,
    /// Take this scheme, host and port for each "url" of the file, such as wss://staging.example.org; paths stay
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<UrlBase>,
    /// The same for each "publish"; twice, if some are tcp:// and others not
    #[arg(long, value_name = "URL")]
    pub(super) publish: Vec<UrlBase>,
    /// The server's process: adds its CPU time and memory, and its children's
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,
    /// A name for this run, for comparisons
    #[arg(long, value_name = "NAME")]
    pub(super) label: Option<String>,
    /// Print every figure of each phase, not a line
    #[arg(long, conflicts_with = "json")]
    pub(super) full: bool,
    /// Print the report as one JSON object and nothing else
    #[arg(long)]
    pub(super) json: bool,
    /// Write the report as a page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the timelines of the phases as CSV, a line for each second
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
}
