//! Shell completions and man pages for packages, generated from the command line's definitions.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use veche_terminal::exit::{CommandFailure, Exit, print};

use super::Cli;

/// Prints a completion script.
pub(super) fn completions(shell: Shell) -> Result<(), CommandFailure> {
    print(format_args!("{}", script(shell)))
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "veche", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes a man page for `veche` and one for each of its commands.
pub(super) fn man(folder: &Path) -> Result<(), CommandFailure> {
    clap_mangen::generate_to(Cli::command(), folder).map_err(|error| {
        CommandFailure::new(Exit::Failed, format!("{}: {error}", folder.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_shell_completes_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for command in Cli::command()
                .get_subcommands()
                .filter(|command| !command.is_hide_set())
            {
                assert!(
                    script.contains(command.get_name()),
                    "{shell}: {}",
                    command.get_name()
                );
            }
            assert!(script.contains("slow"), "{shell}: options");
        }
    }

    #[test]
    fn there_is_a_man_page_for_every_command() {
        let folder = std::env::temp_dir().join(format!("veche-man-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        man(&folder).expect("written");
        let page = |name: &str| fs::read_to_string(folder.join(name)).expect(name);
        assert!(page("veche.1").contains(".TH veche 1"));
        for command in Cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            let name = format!("veche-{}.1", command.get_name());
            assert!(page(&name).contains(".SH SYNOPSIS"), "{name}");
        }
        assert!(page("veche-status.1").contains("slow"));
        let _ = fs::remove_dir_all(&folder);
    }
}
