//! Generates docs/reference/cli.md from the command line's definitions.
//!
//! `VECHE_BLESS=1 cargo test -p veche reference` regenerates it.

use std::fmt::Write as _;

use clap::CommandFactory as _;
use veche_terminal::exit::Exit;

use super::Cli;

fn page() -> String {
    let mut page = String::from(
        "<!-- Written by `VECHE_BLESS=1 cargo test -p veche reference` from crates/server/src/cli/; a test compares. -->\n# Command line\n",
    );
    let mut root = Cli::command().term_width(96).after_help("");
    root.build();
    let _ = write!(
        page,
        "\n```text\n{}```\n",
        trimmed(&root.render_long_help().to_string())
    );
    let _ = write!(page, "\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for exit in Exit::ALL {
        let _ = writeln!(page, "| {} | {} |", exit.code(), exit.text());
    }
    page.push_str("\nEach error is one line on standard error that describes what to do. An invalid configuration gets one line for each problem.\n");
    for command in root.get_subcommands_mut() {
        let name = command.get_name().to_owned();
        let help = trimmed(&command.render_long_help().to_string());
        let _ = write!(page, "\n## veche {name}\n\n```text\n{help}```\n");
        for below in command.get_subcommands_mut() {
            if below.is_hide_set() {
                continue;
            }
            let sub = below.get_name().to_owned();
            let help = trimmed(&below.render_long_help().to_string());
            let _ = write!(page, "\n### veche {name} {sub}\n\n```text\n{help}```\n");
        }
    }
    page
}

/// Removes trailing spaces from lines, and ends the text with one newline.
fn trimmed(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

#[test]
fn reference_of_the_command_line_is_current() {
    crate::generated_page::assert_page_is_current("cli.md", &page());
}
