//! Tests of `[events]`, which names the receivers of events.

use std::time::Duration;

use veche_hub::EventLevel;

use super::bad::says_after_listen;
use super::{LISTEN, good};

const ROOMS: &str = "[[namespace]]\nname = \"room\"\nevents = \"members\"\n";

#[test]
fn events_section_is_read() {
    let text = format!(
        "{LISTEN}{ROOMS}[events]\nurl = \"http://127.0.0.1:9/x\"\nsecrets = [\"shh\", \"two\"]\n"
    );
    let config = good(&text);
    assert_eq!(config.warnings, []);
    assert_eq!(config.namespaces[0].event_level, EventLevel::Members);
    let events = config.events.expect("there is one");
    assert_eq!(events.url.expose(), "http://127.0.0.1:9/x");
    let secrets: Vec<_> = events.secrets.iter().map(|one| one.expose()).collect();
    assert_eq!(secrets, ["shh", "two"]);
    assert_eq!(
        (events.timeout, events.queue),
        (Duration::from_secs(5), 10_000)
    );
    // The secret is never displayed.
    assert!(!format!("{events:?}").contains("shh"));
    assert_eq!(good(LISTEN).events, None);
}

#[test]
fn an_app_can_receive_events() {
    let app = "[[app]]\nname = \"chat\"\nscript = \"api.lua\"\n";
    let url = "url = \"http://127.0.0.1:9/x\"\n";
    for (url, is_sent) in [("", false), (url, true)] {
        let config = good(&format!(
            "{LISTEN}{app}{ROOMS}[events]\napp = \"chat\"\n{url}"
        ));
        // An app that receives events needs no route, so there is no warning.
        assert_eq!(config.warnings, []);
        assert_eq!(
            (config.listener, config.events.is_some()),
            (Some(0), is_sent)
        );
    }
    says_after_listen(
        &format!("{app}{ROOMS}[events]\napp = \"caht\"\n"),
        &["10:7: app: no [[app]] has the name \"caht\"; did you mean \"chat\"?"],
    );
    says_after_listen(
        &format!(
            "[[app]]\nname = \"chat\"\nruntime = \"php\"\ncommand = [\"php\"]\n{ROOMS}[events]\napp = \"chat\"\n"
        ),
        &["11:7: app: \"chat\" is not a Lua app, and only Lua apps receive events; use url"],
    );
}

#[test]
fn invalid_events_settings_are_reported() {
    says_after_listen(
        ROOMS,
        &["5:10: events: [events] has neither url nor app, so events are not sent"],
    );
    says_after_listen(
        "[events]\nurl = \"ftp://x\"\nqueue = 1\n",
        &[
            "4:7: url: a URL must begin with http:// or https://, found \"ftp://x\"",
            "5:9: queue: expected a whole number from 100 to 10000000, found 1",
        ],
    );
}

#[test]
fn ineffective_settings_are_warned_of() {
    for (text, ends) in [
        (
            "[events]\nqueue = 1000\n",
            "queue: has no effect without url",
        ),
        (
            "[events]\nurl = \"http://127.0.0.1/\"\n",
            "url: no [[namespace]] has events, so there is nothing to send",
        ),
        (
            "[[namespace]]\nname = \"room\"\nevents = \"occupancy\"\n[events]\nurl = \"https://example.org/\"\n",
            "url: without secrets the back end can't verify that requests come from this server",
        ),
    ] {
        let config = good(&format!("{LISTEN}{text}"));
        let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].ends_with(ends), "{warnings:?}");
    }
}
