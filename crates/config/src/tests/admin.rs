//! `[admin]`: its keys, the listeners of the page, and the shown configuration.

use super::bad::{says, says_after_listen};
use super::{LISTEN, checked, good};
use crate::SecretValue;

const INTERNAL: &str = "[[listen]]\naddress = \"127.0.0.1:1\"\nrole = \"internal\"\n";

#[test]
fn keys_come_as_those_of_the_api() {
    let config = good(&format!(
        "{INTERNAL}[admin]\nkeys = [\"a-key-that-is-long-enough\", {{ file = \"admin.key\" }}]\n"
    ));
    let keys: Vec<&str> = config.admin.keys.iter().map(SecretValue::expose).collect();
    let expected = ["a-key-that-is-long-enough", "a-key-from-a-file-of-its-own"];
    assert_eq!(keys, expected);
    assert_eq!(config.admin.files.len(), 1);
    assert_eq!(config.api.keys.len(), 0);
    says_after_listen(
        "[admin]\nkeys = [\"two words\", { env = \"NONE\" }]\n",
        &[
            "4:9: keys: a key must consist of visible ASCII characters without spaces, because it is sent in a header",
            "4:22: keys: the environment has no NONE",
        ],
    );
}

#[test]
fn the_page_is_on_internal_listeners_and_nowhere_else() {
    let route = "[[route]]\npath = \"/admin/x\"\nhandler = \"echo\"\nlisten = \"internal\"\n";
    let keys = "[admin]\nkeys = [\"a-key-that-is-long-enough\"]\n";
    assert!(checked(&format!("{INTERNAL}{route}")).is_ok());
    says(
        &format!("{INTERNAL}{route}{keys}"),
        &["5:8: path: internal listeners serve \"/admin/x\" themselves"],
    );
    // No handler serves the admin page, so no route can publish it on a public listener.
    let report = checked(&format!(
        "{LISTEN}[[route]]\npath = \"/ops/*\"\nhandler = \"admin\"\n"
    ));
    let report = report.map(|_| ()).expect_err("no handler").to_string();
    assert!(report.ends_with("found \"admin\""), "{report}");
    let warnings = |text: &str| {
        let shown = good(text).warnings.into_iter();
        shown.map(|one| one.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        warnings(&format!("{LISTEN}{keys}")),
        [
            "/etc/veche/veche.toml:4:8: keys: no [[listen]] has role \"internal\", so the admin page is not served"
        ]
    );
    let open = INTERNAL.replace("127.0.0.1:1", "10.0.0.1:1");
    assert_eq!(
        warnings(&format!(
            "{open}{keys}[api]\nkeys = [\"another-that-is-long-enough\"]\n"
        )),
        [
            "/etc/veche/veche.toml:2:11: address: the internal listener on 10.0.0.1:1 is not loopback, so every client that reaches it can read /health and /metrics, and the keys of the API and of the admin page cross the network as plain text"
        ]
    );
}

#[test]
fn the_shown_configuration_contains_no_secrets() {
    let config = good(&format!(
        "{INTERNAL}[admin]\nkeys = [\"hidden-in-the-file\"]\n[limits]\nping_interval = \"7s\"\n\
         [[app]]\nname = \"a\"\nscript = \"api.lua\"\noptions = {{ password = \"hidden-too\", port = 5 }}\n\
         [[route]]\npath = \"/a\"\nhandler = \"lua\"\napp = \"a\"\nlisten = \"internal\"\n"
    ));
    let shown = config.effective.shown();
    assert!(!shown.to_string().contains("hidden"), "{shown}");
    let setting = |header: &str, name: &str| {
        let sections = shown["sections"].as_array().expect("a list");
        let section = sections.iter().find(|section| section["header"] == header);
        let settings = section.expect("there")["settings"].as_array();
        let found = settings.expect("a list").iter();
        let mut found = found.filter(|setting| setting["name"] == name);
        found.next().expect("there").clone()
    };
    assert_eq!(setting("[admin]", "keys")["value"], "[\"****\"]");
    let options = setting("[[app]]", "options");
    assert_eq!(options["value"], "{ password = …, port = … }");
    let interval = setting("[limits]", "ping_interval");
    assert_eq!(
        (&interval["value"], &interval["line"]),
        (&"\"7s\"".into(), &7.into())
    );
    assert!(setting("[limits]", "idle_timeout")["line"].is_null());
}
