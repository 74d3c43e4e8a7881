//! Tests `[[app]]` sections with FastCGI: a valid section, and the errors of invalid sections.

use std::time::Duration;

use super::bad::says_after_listen;
use super::{LISTEN, good};
use crate::types::RouteHandler;

const APP: &str = r#"
[[app]]
name = "chat"
runtime = "fastcgi"
address = "unix:/run/php/php8.2-fpm.sock"
script = "/var/www/app.php"
workers = 4
events = ["open", "message", "rpc"]
event_timeout = "5s"
api_url = "http://127.0.0.1:8081"
api_key_file = "api.key"
options = { room = "tea" }

[[route]]
path = "/ws"
handler = "app"
app = "chat"
"#;

#[test]
fn scripts_behind_fastcgi() {
    let config = good(&format!("{LISTEN}{APP}"));
    assert_eq!(config.warnings, []);
    let fastcgi = config.apps[0].fastcgi.as_ref().expect("it is one");
    assert_eq!(fastcgi.pool.address, "unix:/run/php/php8.2-fpm.sock");
    assert_eq!(fastcgi.pool.script, "/var/www/app.php");
    assert_eq!(fastcgi.pool.size, 4);
    assert_eq!(fastcgi.pool.timeout, Duration::from_secs(5));
    assert_eq!(fastcgi.pool.wait_timeout, Duration::from_secs(5));
    assert_eq!(fastcgi.pool.idle_timeout, Duration::ZERO);
    assert_eq!(fastcgi.events, ["open", "message", "rpc"]);
    let (url, key) = fastcgi.api.as_ref().expect("an address");
    assert_eq!(url, "http://127.0.0.1:8081/");
    assert!(key.is_some());
    assert!(config.apps[0].own_script().is_none());
    assert!(matches!(
        config.routes[0].handler,
        RouteHandler::App { app: 0, .. }
    ));
    let again = good(&config.effective.to_string());
    assert_eq!(again.apps, config.apps);
}

#[test]
fn bad_ones() {
    says_after_listen(
        r#"[[app]]
name = "a"
runtime = "fastcgi"
script = "app.php"
files = "public"
events = ["open", "mesage"]
[[app]]
name = "b"
runtime = "fastcgi"
script = "/app.php"
address = "/run/fpm.sock"
api_key_file = "api.key"
[[app]]
name = "c"
script = "chat/app.lua"
address = "unix:/run/fpm.sock"
"#,
        &[
            "3:1: [[app]] with runtime \"fastcgi\" lacks \"address\", which is required",
            "6:10: script: expected an absolute path, as the FastCGI server sees it",
            "7:1: files: has no effect with runtime = \"fastcgi\"",
            "8:19: events: unknown event \"mesage\"; did you mean \"message\"?",
            "13:11: address: expected unix:/PATH or HOST:PORT, found \"/run/fpm.sock\"",
            "14:1: api_key_file: has no effect without \"api_url\"",
            "18:1: address: has no effect with runtime = \"lua\"",
        ],
    );
}
