//! Tests of `[history]`: where the history of channels is kept.

use std::path::PathBuf;
use std::time::Duration;

use super::bad::says_after_listen;
use super::{LISTEN, good};
use crate::types::{Fsync, HistoryStore};

const REMEMBERS: &str = "[[namespace]]\nname = \"chat\"\nhistory_size = 7\n";

#[test]
fn nothing_is_kept_unless_a_folder_is_named() {
    let store = |text: &str| {
        let config = good(&format!("{LISTEN}{REMEMBERS}{text}"));
        assert_eq!(config.warnings, []);
        config.history
    };
    assert_eq!(store(""), None);
    assert_eq!(store("[history]\n"), None);
    let kept = |path: &str, fsync| {
        let path = PathBuf::from(path);
        Some(HistoryStore { path, fsync })
    };
    let second = Fsync::Interval(Duration::from_secs(1));
    assert_eq!(
        store("[history]\npath = \"kept\"\n"),
        kept("/etc/veche/kept", second)
    );
    for (text, fsync) in [
        ("commit", Fsync::Commit),
        ("never", Fsync::Never),
        ("50ms", Fsync::Interval(Duration::from_millis(50))),
    ] {
        let text = format!("[history]\npath = \"/srv/www/kept\"\nfsync = \"{text}\"\n");
        assert_eq!(store(&text), kept("/srv/www/kept", fsync));
    }
}

#[test]
fn invalid_history_settings_are_reported() {
    for (text, line) in [
        (
            "path = \"/nowhere/kept\"\n",
            "4:8: path: the folder /nowhere does not exist",
        ),
        (
            "path = \"api.lua\"\n",
            "4:8: path: expected a folder, but /etc/veche/api.lua is a file",
        ),
        (
            "path = \"\"\n",
            "4:8: path: expected the path of a folder, found an empty string",
        ),
        (
            "path = \"kept\"\n[engine]\ntype = \"redis\"\nurl = \"redis://h\"\n",
            "6:8: type: with \"redis\", history is stored in Redis; remove path from [history]",
        ),
        (
            "[engine]\ntype = \"redis\"\n",
            "5:8: url: required with type = \"redis\"",
        ),
        (
            "[engine]\ntype = \"redis\"\nurl = \"http://:secret@h\"\n",
            "6:7: url: expected redis://, rediss:// or redis+sentinel://, found http://",
        ),
        (
            "fsync = \"comit\"\n",
            "4:9: fsync: expected a duration from \"10ms\" to \"1h\", \"commit\" or \"never\", found \"comit\"; did you mean \"commit\"?",
        ),
        (
            "fsync = 1\n",
            "4:9: fsync: expected a duration from \"10ms\" to \"1h\", \"commit\" or \"never\", found 1",
        ),
        (
            "fsync = \"1ms\"\n",
            "4:9: fsync: expected a duration from \"10ms\" to \"1h\", \"commit\" or \"never\", found \"1ms\"",
        ),
    ] {
        says_after_listen(&format!("[history]\n{text}"), &[line]);
    }
}

#[test]
fn ineffective_settings_are_warned_of() {
    for (text, ends) in [
        (
            format!("{REMEMBERS}[history]\nfsync = \"commit\"\n"),
            "fsync: has no effect without path",
        ),
        (
            "[history]\npath = \"kept\"\n".to_owned(),
            "path: no [[namespace]] has history_size, so no history is stored",
        ),
    ] {
        let config = good(&format!("{LISTEN}{text}"));
        let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].ends_with(ends), "{warnings:?}");
    }
}

#[test]
fn a_running_server_keeps_its_folder() {
    let running = good(&format!("{LISTEN}{REMEMBERS}[history]\npath = \"kept\"\n"));
    let new = good(&format!("{LISTEN}{REMEMBERS}[history]\npath = \"other\"\n"));
    let changes = running.effective.changes(&new.effective);
    assert_eq!(changes.restart, ["history.path"]);
    assert_eq!(new.on_top_of(&running).history, running.history);
}
