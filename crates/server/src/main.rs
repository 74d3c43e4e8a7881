//! `veche`: the realtime application server.

use std::path::PathBuf;
use std::process::ExitCode;

mod cli;
#[allow(dead_code, unused_imports)]
mod config;

fn serve(_path: PathBuf, _config: config::Config) -> anyhow::Result<()> {
    anyhow::bail!("serve comes with the supervisor")
}

fn main() -> ExitCode {
    cli::main()
}
