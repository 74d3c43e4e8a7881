//! Tests `[[namespace]]` and the route option `positions`.

use std::time::Duration;

use veche_hub::{ChannelAccess, DeltaMode, RecoveryMode, SubscribeAccess};

use super::bad::says_after_listen;
use super::{LISTEN, good};
use crate::types::{HistoryConfig, NamespaceConfig};

#[test]
fn namespaces_remember_as_they_say() {
    let config = good(&format!(
        r##"{LISTEN}
[[namespace]]
name = "chat"
presence = true
leave_delay = "9s"
history_size = 100
delta = "fossil"
[[namespace]]
name = ""
wildcard = true
slow_consumer = "miss"
tags_filter = true
[[namespace]]
name = "#"
history_size = 3
history_bytes = "64MiB"
history_ttl = "2d"
recovery = "latest"
delta = "fossil"
delta_publish = true
[limits]
history_bytes = "1GiB"
"##
    ));
    assert_eq!(config.warnings, []);
    let hour = Duration::from_secs(3600);
    let namespace = |name: &str, history| NamespaceConfig {
        name: name.to_owned(),
        history,
        history_bytes: (name == "#").then_some(64 << 20),
        presence: name == "chat",
        join_leave: false,
        force_push_join_leave: false,
        event_level: veche_hub::EventLevel::Off,
        leave_delay: Duration::from_secs(if name == "chat" { 9 } else { 5 }),
        differences: match name {
            "chat" => DeltaMode::OnRequest,
            "#" => DeltaMode::Always,
            _ => DeltaMode::Off,
        },
        tags_filter: name.is_empty(),
        access: ChannelAccess::default(),
        slow_miss: name.is_empty(),
    };
    let chat = HistoryConfig {
        size: 100,
        ttl: hour,
        position_ttl: 24 * hour,
        recovery: RecoveryMode::Missed,
    };
    let users = HistoryConfig {
        size: 3,
        ttl: 48 * hour,
        // A position is stored at least as long as publications.
        position_ttl: 48 * hour,
        recovery: RecoveryMode::Latest,
    };
    let expected = [
        namespace("chat", Some(chat)),
        namespace("", None),
        namespace("#", Some(users)),
    ];
    assert_eq!(config.namespaces, expected);
    assert_eq!(config.wildcards, [""]);
    assert_eq!(config.limits.history_bytes, 1 << 30);
}

#[test]
fn invalid_namespace_settings_are_reported() {
    says_after_listen(
        r##"[[namespace]]
history_size = 7
[[namespace]]
name = "chat:1"
[[namespace]]
name = "a"
history_size = 0
history_sise = 7
[[namespace]]
name = "a"
recovery = "all"
[[route]]
path = "/"
handler = "push"
positions = true
outbox_full = "latest"
[[route]]
path = "/echo"
handler = "echo"
positions = true
"##,
        &[
            "3:1: [[namespace]] lacks \"name\", which is required",
            "6:8: name: expected the part of channel names before the \":\", \"\" for channels without one, \"#\" for personal channels or a pattern such as \"/users/:user\", found \"chat:1\"",
            "10:1: unknown directive \"history_sise\" in [[namespace]]; did you mean \"history_size\"?",
            "12:8: name: another [[namespace]] is already called \"a\"",
            "13:12: recovery: expected \"missed\" or \"latest\", found \"all\"",
            "18:15: outbox_full: clients with positions rely on receiving every publication; use \"disconnect\"",
            "22:1: positions: has no effect with handler \"echo\", only with \"push\", \"lua\", \"app\"",
        ],
    );
}

#[test]
fn names_may_be_patterns() {
    let config = good(&format!(
        "{LISTEN}[[namespace]]\nname = \"/users/:user\"\nsubscribe = \"client\"\n[[namespace]]\nname = \"/users/all\"\n"
    ));
    assert_eq!(config.warnings, []);
    let namespaces = crate::namespaces(&config);
    assert_eq!(namespaces.parameter("/users/ann", "user"), Some("ann"));
    assert_eq!(
        namespaces.of("/users/ann").access.subscribe,
        SubscribeAccess::Client
    );
    assert_eq!(
        namespaces.of("/users/all").access.subscribe,
        SubscribeAccess::Disabled
    );
    says_after_listen(
        r##"[[namespace]]
name = "/users/:user"
[[namespace]]
name = "/users/:name"
wildcard = true
[[namespace]]
name = "/users/"
[[namespace]]
name = "#"
wildcard = true
history_size = 7
slow_consumer = "miss"
"##,
        &[
            "6:8: name: another [[namespace]] is already called \"/users/:user\"",
            "7:12: wildcard: personal channels, private channels and channels of a pattern can't be subscribed to with a wildcard",
            "9:8: name: expected the part of channel names before the \":\", \"\" for channels without one, \"#\" for personal channels or a pattern such as \"/users/:user\", found \"/users/\"",
            "12:12: wildcard: personal channels, private channels and channels of a pattern can't be subscribed to with a wildcard",
            "14:17: slow_consumer: can't be combined with history_size, because the namespace's clients rely on receiving every publication",
        ],
    );
}

#[test]
fn a_reload_does_not_change_wildcard_namespaces() {
    let with = |namespaces: &str| good(&format!("{LISTEN}{namespaces}"));
    let plain = with("[[namespace]]\nname = \"news\"\n");
    let wildcard = with("[[namespace]]\nname = \"news\"\nwildcard = true\n");
    let none = with("");
    for (old, new) in [
        (&plain, &wildcard),
        (&wildcard, &plain),
        (&none, &wildcard),
        (&wildcard, &none),
    ] {
        let changes = old.effective.changes(&new.effective);
        assert_eq!(changes.restart, ["namespace[1].wildcard"]);
        assert_eq!(new.clone().on_top_of(old).wildcards, old.wildcards);
    }
}

#[test]
fn what_means_nothing_without_a_history_is_warned_of() {
    let config = good(&format!(
        "{LISTEN}[[namespace]]\nname = \"a\"\nhistory_size = \"off\"\nhistory_bytes = \"1MiB\"\nhistory_ttl = \"1h\"\ndelta_publish = true\n"
    ));
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    let endings = [
        "history_bytes: has no effect without history_size",
        "history_ttl: has no effect without history_size",
        "delta_publish: has no effect without delta",
    ];
    assert_eq!(warnings.len(), endings.len(), "{warnings:?}");
    for (warning, ending) in warnings.iter().zip(endings) {
        assert!(warning.ends_with(ending), "{warnings:?}");
    }
    assert_eq!(config.namespaces[0].history, None);
    assert_eq!(config.namespaces[0].history_bytes, None);
}

#[test]
fn budgets_of_namespaces_are_parts_of_the_one_for_all() {
    let two = |second: &str| {
        format!(
            "{LISTEN}[limits]\nhistory_bytes = \"9MiB\"\n[[namespace]]\nname = \"a\"\nhistory_size = 1\nhistory_bytes = \"4MiB\"\n[[namespace]]\nname = \"b\"\nhistory_size = 1\n{second}"
        )
    };
    assert_eq!(good(&two("history_bytes = \"5MiB\"\n")).warnings, []);
    assert_eq!(good(&two("")).warnings, []);
    let all = "history_bytes = \"5MiB\"\n[[namespace]]\nname = \"c\"\nhistory_size = 1\n";
    let warnings = good(&two(all)).warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].to_string().ends_with(
        "history_size: other namespaces reserve all of history_bytes in [limits], so these channels have no history"
    ));
    says_after_listen(
        r##"[limits]
history_bytes = "9MiB"
[[namespace]]
name = "a"
history_size = 1
history_bytes = "4MiB"
[[namespace]]
name = "b"
history_size = 1
history_bytes = "6MiB"
"##,
        &[
            "12:17: history_bytes: with this namespace, the namespaces reserve 10485760 bytes in all, but history_bytes in [limits] allows 9437184 for all channels",
        ],
    );
}

#[test]
fn routes_may_tell_positions() {
    let config = good(&format!(
        "{LISTEN}[[route]]\npath = \"/\"\nhandler = \"push\"\npositions = true\nchannels = [\"*\"]\n"
    ));
    let Some(websocket) = config.routes[0].handler.websocket() else {
        panic!("{:?}", config.routes[0].handler);
    };
    assert!(websocket.has_positions);
}
