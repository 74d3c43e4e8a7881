//! Applications, and the routes that lead to them.

use super::*;

pub(super) const APPS: &str = r#"
[[listen]]
address = "127.0.0.1:8080"

[[app]]
name = "chat"
script = "chat/app.lua"
memory = "16MiB"
cpu_budget = "5ms"
request_timeout = "off"
files = "/srv/www"
options = { greeting = "hi", rooms = ["a", "b"], most = 0x10, share = 0.5, strict = true }

[[app]]
name = "quiz"
script = "/srv/api.lua"
[app.options]
since = 2026-01-01
[app.options.deep]
quoted = "\"\n"

[[route]]
path = "/chat"
handler = "lua"
app = "chat"
identity = "cookie:user"
origins = ["*"]
compression = true
message_bytes_max = "1MiB"

[[route]]
path = "/chat/*"
handler = "lua"
app = "chat"

[[route]]
path = "/quiz"
handler = "lua"
app = "quiz"
methods = ["GET", "PATCH"]

[[route]]
path = "/api/*"
handler = "lua"
script = "api.lua"
memory = "1GiB"
options = { a = {} }

[[route]]
path = "/api"
handler = "lua"
script = "api.lua"
memory = "1GiB"

[[route]]
path = "/other"
handler = "lua"
script = "chat/app.lua"
"#;

#[test]
fn apps() {
    let config = good(APPS);
    assert_eq!(config.warnings.len(), 1, "of any site's pages with cookies");
    let names: Vec<&str> = config.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["chat", "quiz", "api.lua", "chat/app.lua"]);
    let [chat, quiz, api, other] = &config.apps[..] else {
        panic!("four apps")
    };
    assert_eq!(chat.script, Path::new("/etc/veche/chat/app.lua"));
    assert_eq!(chat.memory_bytes_max, 16 << 20);
    assert_eq!(chat.cpu_budget, Duration::from_millis(5));
    let options = r#"
        greeting = "hi"
        rooms = ["a", "b"]
        most = 16
        share = 0.5
        strict = true
    "#;
    assert_eq!(chat.options, options.parse().expect("TOML"));
    assert_eq!(quiz.script, Path::new("/srv/api.lua"));
    let options = "since = 2026-01-01\ndeep = { quoted = \"\\\"\\n\" }";
    assert_eq!(quiz.options, options.parse().expect("TOML"));
    // A script that a route names is an app of its own, with the same defaults as [[app]].
    assert_eq!(api.script, Path::new("/etc/veche/api.lua"));
    assert_eq!(
        (api.memory_bytes_max, api.cpu_budget),
        (1 << 30, quiz.cpu_budget)
    );
    assert_eq!(other.memory_bytes_max, quiz.memory_bytes_max);
    assert_eq!(
        (other.cpu_budget, other.options.len()),
        (Duration::from_millis(20), 0)
    );
    assert_eq!(chat.request_timeout, None);
    assert_eq!(chat.files.as_deref(), Some(Path::new("/srv/www")));
    assert_eq!(other.files, None);
    assert_eq!(other.request_timeout, Some(Duration::from_secs(60)));
    assert_eq!(other.request_timeout, quiz.request_timeout);
    let led_to: Vec<usize> = config
        .routes
        .iter()
        .map(|route| match route.handler {
            RouteHandler::App { app, .. } => app,
            _ => panic!("{route:?}"),
        })
        .collect();
    assert_eq!(led_to, [0, 0, 1, 2, 2, 3]);
    let RouteHandler::App {
        identity,
        websocket,
        ..
    } = &config.routes[0].handler
    else {
        panic!("lua")
    };
    assert_eq!(*identity, IdentitySource::Cookie("user".to_owned()));
    assert_eq!(websocket.origins, [OriginRule::Any]);
    assert_eq!(websocket.compression, CompressionMode::On);
    assert_eq!(websocket.message_bytes_max, 1 << 20);
    assert_eq!(config.routes[1].methods.iter().count(), 7);
    assert_eq!(
        config.routes[2].methods.iter().collect::<Vec<_>>(),
        ["GET", "PATCH"]
    );
}
