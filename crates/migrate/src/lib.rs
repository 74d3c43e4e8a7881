//! `veche migrate`: creates a `veche.toml` from the configuration of another server.
//!
//! The crate translates the other server's settings into Veche's settings. It does not check the
//! result; `veche check` does that.

#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::Value;

use draft::ConfigDraft;
use settings::SettingsTree;
use veche_terminal::exit::{CommandFailure, Exit, print};
use veche_terminal::masked_urls;
use veche_terminal::shown;

mod centrifugo;
mod draft;
mod namespaces;
mod old_names;
mod settings;

/// The server whose configuration is migrated.
#[derive(Debug, Subcommand)]
pub enum MigrationSource {
    /// From Centrifugo 5 or 6; options without a counterpart are listed on standard error and at the head of the file
    Centrifugo(CentrifugoArgs),
}

/// The arguments of `veche migrate centrifugo`: the input and the output.
#[derive(Args, Debug)]
pub struct CentrifugoArgs {
    /// The other server's configuration file, JSON or TOML; "-" reads standard input
    #[arg(value_name = "CONFIG")]
    source: PathBuf,
    /// Write this file, and the secrets into files beside it; none of them may exist. By default standard output gets it, and no
    /// secret is written
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the configuration.
///
/// # Errors
/// The input can't be read or understood, or the output can't be written.
pub fn run(from: &MigrationSource) -> Result<(), CommandFailure> {
    let MigrationSource::Centrifugo(args) = from;
    let value = parse(&read(&args.source)?).map_err(|why| {
        let source = shown(&args.source);
        CommandFailure::new(Exit::Usage, format!("{source}: {why}"))
    })?;
    let draft = centrifugo::draft(SettingsTree::new(value));
    for note in draft.notes() {
        eprintln!("veche: {}", masked_urls(note));
    }
    let Some(output) = &args.output else {
        for secret in draft.secrets() {
            eprintln!(
                "veche: write the value of {} to the file {}, and make it readable by the server's user only",
                secret.setting, secret.file
            );
        }
        return print(format_args!("{draft}"));
    };
    write(output, &draft)
}

fn read(source: &Path) -> Result<String, CommandFailure> {
    let text = match source.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map(|_| text)
        }
        false => fs::read_to_string(source),
    };
    text.map_err(|error| CommandFailure::new(Exit::Failed, format!("{}: {error}", shown(source))))
}

/// Parses a text as JSON if it begins with `{`, otherwise as TOML.
fn parse(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    toml::from_str(text).map_err(|error| {
        let why = error.message();
        format!("neither JSON nor TOML: {why}. Convert YAML with yq -o=json config.yaml")
    })
}

fn write(output: &Path, draft: &ConfigDraft) -> Result<(), CommandFailure> {
    let folder = output.parent().unwrap_or(Path::new(""));
    let files = draft
        .secrets()
        .iter()
        .map(|secret| folder.join(secret.file));
    // Writes nothing if any of the files exists. Otherwise an incomplete attempt would leave files
    // that make the next attempt fail.
    for file in files.chain([output.to_owned()]) {
        if fs::symlink_metadata(&file).is_ok() {
            let why = format!(
                "{}: the file already exists; nothing was written",
                shown(&file)
            );
            return Err(CommandFailure::new(Exit::Failed, why));
        }
    }
    create(output, 0o644, &draft.to_string())?;
    for secret in draft.secrets() {
        let file = folder.join(secret.file);
        create(&file, 0o600, &format!("{}\n", secret.content.trim_end()))?;
        eprintln!("veche: wrote {} into {}", secret.setting, shown(&file));
    }
    Ok(())
}

fn create(path: &Path, mode: u32, text: &str) -> Result<(), CommandFailure> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| CommandFailure::new(Exit::Failed, format!("{}: {error}", shown(path))))
}
