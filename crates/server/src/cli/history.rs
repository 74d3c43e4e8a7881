//! `veche history`: maintenance of the history on disk while no server uses it.

use std::path::Path;

use veche_config as config;
use veche_terminal::exit::{self, CommandFailure, Exit};

/// Gives all channels new epochs at the next start.
pub(super) fn renew_epochs(file: &Path) -> Result<(), CommandFailure> {
    let config = config::load(file)?;
    let Some(history) = &config.history else {
        let why = "there is no history on disk: [history] path is not set";
        return Err(CommandFailure::new(Exit::Config, why));
    };
    let renewed = veche_archive::renew_epochs(&history.path);
    renewed.map_err(|error| CommandFailure::new(Exit::Failed, error.to_string()))?;
    exit::print_line(format_args!(
        "{}: all channels get new epochs at the next start",
        history.path.display()
    ))
}
