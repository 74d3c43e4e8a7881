//! `[[service]]`: valid sections, and the messages for invalid ones.

use std::path::Path;
use std::time::Duration;

use super::bad::says_after_listen;
use super::{LISTEN, good};
use crate::RestartPolicy;

const SERVICES: &str = r#"
[[service]]
name = "feed"
script = "chat/app.lua"

[[service]]
name = "sweep-2"
script = "api.lua"
instances = 8
restart = "always"
memory = "2MiB"
cpu_budget = "1s"
options = { every = 5 }
"#;

#[test]
fn services() {
    let config = good(&format!("{LISTEN}{SERVICES}"));
    assert_eq!(config.warnings, []);
    let [feed, sweep] = &config.services[..] else {
        panic!("two services")
    };
    assert_eq!(feed.app.name, "feed");
    assert_eq!(feed.app.script, Path::new("/etc/veche/chat/app.lua"));
    assert_eq!(feed.app.memory_bytes_max, 64 << 20);
    assert_eq!(feed.app.cpu_budget, Duration::from_millis(20));
    assert_eq!(
        (feed.instances, feed.restart),
        (1, RestartPolicy::OnFailure)
    );
    assert_eq!((sweep.instances, sweep.restart), (8, RestartPolicy::Always));
    assert_eq!(sweep.app.memory_bytes_max, 2 << 20);
    assert_eq!(sweep.app.cpu_budget, Duration::from_secs(1));
    assert_eq!(sweep.app.options["every"].as_integer(), Some(5));
    assert!(config.apps.is_empty());
    let again = good(&config.effective.to_string());
    assert_eq!(again.services, config.services);
    let other = good(&format!("{LISTEN}{SERVICES}").replace("= 8", "= 9"));
    let changes = config.effective.changes(&other.effective);
    assert_eq!(changes.reload, ["service[2].instances"]);
}

#[test]
fn bad_ones() {
    says_after_listen(
        r#"[[app]]
name = "chat"
script = "api.lua"
[[service]]
[[service]]
name = "chat"
script = "nowhere.lua"
instances = 0
restart = "sometimes"
[[service]]
name = "a b"
script = "api.lua"
path = "/x"
[[service]]
name = "feed"
script = "api.lua"
memory = "1B"
[[service]]
name = "feed"
script = "api.lua"
instances = 1025
[service.options]
fine = true
[servic]
"#,
        &[
            "6:1: [[service]] lacks \"name\", which is required",
            "6:1: [[service]] lacks \"script\", which is required",
            "8:8: name: an [[app]] is already called \"chat\"",
            "9:10: script: the file /etc/veche/nowhere.lua does not exist",
            "10:13: instances: expected a whole number from 1 to 1024, found 0",
            "11:11: restart: expected \"on-failure\", \"always\" or \"never\", found \"sometimes\"",
            "13:8: name: expected letters, digits, \"-\" and \"_\", found \"a b\"",
            "15:1: unknown directive \"path\" in [[service]]; it belongs under [[route]] or [history]",
            "19:10: memory: expected a size from \"1MiB\" to \"64GiB\", found \"1B\"",
            "21:8: name: another [[service]] is already called \"feed\"",
            "23:13: instances: expected a whole number from 1 to 1024, found 1025",
            "26:2: unknown section \"servic\"; did you mean \"service\"?",
        ],
    );
}
