//! Tests the log files of the running server: the supervisor and the server process reopen them on a signal and
//! rotate them by size.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::ask::{RELOAD, ask};
use crate::support::process::kill;
use crate::support::until;
use crate::veche::Veche;

fn log_to(veche: &Veche, file: &Path, more: &str) {
    let server = format!("log_file = {:?}\n{more}", file.display().to_string());
    veche.write_config("", &server);
    ask(&veche.control(), RELOAD).expect("taken");
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

#[test]
fn a_moved_log_is_reopened_by_both_processes() {
    let veche = Veche::start("reopen", "");
    let file = veche.folder().join("veche.log");
    log_to(&veche, &file, "");
    // Log lines go to the previous file until the reload is in force.
    until("the first line", || {
        ask(&veche.control(), RELOAD).expect("taken");
        !text(&file).is_empty()
    });
    let old = veche.folder().join("veche.log.old");
    fs::rename(&file, &old).expect("moved");
    let server = veche.server_pid();
    kill(veche.pid(), Signal::USR1);
    until("a line of each process", || {
        let text = text(&file);
        text.contains("SIGUSR1: log files reopened")
            && text.lines().any(|line| line.contains("process: log files"))
    });
    let length = text(&old).len();
    // SIGUSR1 is sent to the server process directly, as `pkill -USR1 veche` does. It must not kill
    // it.
    fs::rename(&file, &old).expect("moved");
    kill(server, Signal::USR1);
    until("another line", || {
        text(&file).contains("log files reopened")
    });
    assert_eq!(veche.server_pid(), server);
    assert!(length > 0);
}

#[test]
fn a_log_that_is_full_is_rotated_and_the_oldest_goes() {
    let veche = Veche::start("rotate", "");
    let file = veche.folder().join("veche.log");
    log_to(&veche, &file, "log_rotate = \"4KiB\"\nlog_keep = 2");
    let numbered = |number| veche.folder().join(format!("veche.log.{number}"));
    let mut reloads = 0;
    while !numbered(2).exists() {
        ask(&veche.control(), RELOAD).expect("taken");
        reloads += 1;
        assert!(reloads < 10_000, "nothing is rotated");
    }
    for _ in 0..reloads {
        ask(&veche.control(), RELOAD).expect("taken");
    }
    assert!(!numbered(3).exists());
    for number in [1, 2] {
        // The server process may be rotating its log: meanwhile the file `veche.log.NUMBER` is missing.
        until("a whole file", || {
            let text = text(&numbered(number));
            text.ends_with('\n') && text.len() <= 5 << 10
        });
    }
}
