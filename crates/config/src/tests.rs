//! Tests complete configuration files, and the exact lines that report their problems.

use std::path::Path;
use std::time::Duration;

use veche_frontends::registry::protocol;
use veche_logging::{LogFormat, LogLevel, LogSettings};

use super::checked::{CertificateFacts, Environment, check};
use super::directives::{self, DefaultValue, Section};
use super::hooks::RouteHooks;
use super::identity::KeySource;
use super::raw::default_of;
use super::*;

mod admin;
mod answers;
mod apps;
mod bad;
mod engine;
mod events;
mod fastcgi;
mod history;
mod hooks;
mod identity;
mod namespaces;
mod operate;
mod processes;
mod served;
mod services;
mod tls;

use apps::APPS;

/// Checks `text` as /etc/veche/veche.toml on a machine with a few folders and scripts.
fn checked(text: &str) -> Result<Config, ProblemReport> {
    let folders = [
        "/",
        "/srv/www",
        "/srv/link",
        "/etc/veche",
        "/etc/veche/public",
        "/run/veche",
    ]
    .map(Path::new);
    let files = [
        "/etc/veche/chat/app.lua",
        "/etc/veche/api.lua",
        "/srv/api.lua",
    ]
    .map(Path::new);
    let is_folder = |path: &Path| folders.contains(&path);
    let is_file = |path: &Path| files.contains(&path);
    check(
        Path::new("/etc/veche/veche.toml"),
        text,
        &Environment {
            is_folder: &is_folder,
            is_file: &is_file,
            // /srv/link is a link to a folder that must not be served.
            real: &|path| match path.strip_prefix("/srv/link") {
                Ok(below) => Some(Path::new("/etc/veche/chat").join(below)),
                Err(_) => Some(path.components().collect()),
            },
            is_world_readable: &|path| path.ends_with("exposed.key"),
            certificate: &certificate,
            client_ca: &|path| match path.ends_with("ca.pem") {
                true => Ok(()),
                false => Err(format!("{}: there is no such file", path.display())),
            },
            pam: &|service| match service.name() {
                "veche" => Ok(()),
                _ => Err("there are no such rules".to_owned()),
            },
            jwt_keys: &|source| match source {
                KeySource::SecretFile(path) | KeySource::PublicFile(path)
                    if !path.ends_with("key.pem") =>
                {
                    Err(format!("{}: there is no such file", path.display()))
                }
                KeySource::SecretVariable(name) if name == "SHORT" => Ok(Some(6)),
                _ => Ok(None),
            },
            secret: &|source| match source {
                SecretSource::Here(secret) => Ok(secret.clone()),
                SecretSource::File(path) if path.to_string_lossy().ends_with("key") => {
                    Ok(SecretValue::new("a-key-from-a-file-of-its-own".to_owned()))
                }
                SecretSource::File(path) => {
                    Err(format!("{}: there is no such file", path.display()))
                }
                SecretSource::Variable(name) => Err(format!("the environment has no {name}")),
            },
            state_folder: None,
            now_s: NOW_S,
        },
    )
}

/// The time of the certificate checks, in seconds since 1970.
const NOW_S: i64 = 1_800_000_000;

/// Returns the facts of a test certificate, which is selected by the file name. Any other file counts
/// as missing.
fn certificate(certificate: &Path, key: &Path) -> Result<CertificateFacts, String> {
    let days = |days: i64| NOW_S + days * 24 * 60 * 60;
    let facts = |from, until| CertificateFacts {
        valid_from_s: days(from),
        valid_until_s: days(until),
        is_key_exposed: key.ends_with("exposed.key"),
    };
    match certificate.file_stem().and_then(|name| name.to_str()) {
        Some("good") => Ok(facts(-30, 60)),
        Some("old") => Ok(facts(-100, -10)),
        Some("soon") => Ok(facts(-80, 13)),
        Some("early") => Ok(facts(1, 90)),
        _ => Err(format!("{}: there is no such file", certificate.display())),
    }
}

/// Checks `text`, which has to be valid, and returns the configuration.
fn good(text: &str) -> Config {
    checked(text).unwrap_or_else(|report| panic!("{report}\nin\n{text}"))
}

/// A valid listener, which precedes the lines under test.
const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:8080\"\n";

const FULL: &str = r#"
[server]
workers = 4
io = "epoll"
log = "debug"
log_format = "json"
log_file = "veche.log"
control = "/run/veche/veche.sock"

[[listen]]
address = "127.0.0.1:8080"

[[listen]]
address = "[::1]:8081"
role = "internal"
name = "back"

[[listen]]
address = "127.0.0.1:8082"
role = "push"

[[route]]
path = "/events"
handler = "push"
identity = "cookie:user"
channels = ["news", "room:*"]
origins = ["https://App.example:8443", "https://*.example", "same-host"]
compression = "takeover"
message_bytes_max = 1024
fragments_max = 65_536

[[route]]
path = "/*"
handler = "static"
root = "/srv/www"
methods = ["GET"]

[[route]]
path = "/echo/:room"
handler = "echo"
listen = "back"
compression = true

[limits]
connections = 20_000
connections_per_address = 0
header_timeout = "5s"
idle_timeout = "1h"
ping_interval = "off"
drain_time = 0
outbox_bytes = "1MB"

[api]
keys = ["a-key-that-is-long-enough"]
"#;

#[test]
fn a_full_file() {
    let config = good(FULL);
    assert_eq!(config.warnings, []);
    assert_eq!(config.server.workers.resolve(64), 4);
    assert_eq!(config.server.io, IoBackend::Epoll);
    assert_eq!(config.server.log.level, LogLevel::Debug);
    assert_eq!(config.server.log.format, LogFormat::Json);
    assert_eq!(
        config.server.log.file.as_deref(),
        Some(Path::new("/etc/veche/veche.log"))
    );
    assert_eq!(config.server.control, Path::new("/run/veche/veche.sock"));
    assert_eq!(config.listeners.len(), 3);
    assert_eq!(config.listeners[1].name.as_deref(), Some("back"));
    assert_eq!(
        config
            .listener(ListenerRole::Push)
            .map(|listener| listener.index),
        Some(2)
    );
    let [events, files, echo] = config.routes.as_slice() else {
        panic!("three routes")
    };
    let websocket = WebSocketConfig {
        origins: vec![
            OriginRule::Exact("https://app.example:8443".to_owned()),
            OriginRule::Subdomains {
                scheme: "https".to_owned(),
                suffix: ".example".to_owned(),
                port: None,
            },
            OriginRule::SameHost,
        ],
        compression: CompressionMode::Takeover,
        message_bytes_max: 1_024,
        fragments_max: 65_536,
        inflate_ratio_max: Some(200),
        pacing: None,
        drop_policy: None,
        has_positions: false,
    };
    let channels = vec![
        ChannelPattern::Exact("news".to_owned()),
        ChannelPattern::Prefix("room:".to_owned()),
    ];
    assert_eq!(
        events.handler,
        RouteHandler::Session {
            protocol: protocol("push").expect("it is registered"),
            app: None,
            identity: Some(IdentitySource::Cookie("user".to_owned())),
            channels,
            hooks: RouteHooks::default(),
            websocket,
        }
    );
    assert_eq!((events.index, events.listeners.as_slice()), (0, &[0][..]));
    assert_eq!(
        files.handler,
        RouteHandler::Static {
            root: StaticRoot::Folder("/srv/www".into()),
            precompressed: Vec::new(),
        }
    );
    assert!(files.path.is_prefix() && files.path.segments().is_empty());
    assert_eq!(files.methods.iter().collect::<Vec<_>>(), ["GET"]);
    assert_eq!((echo.index, echo.listeners.as_slice()), (2, &[1][..]));
    assert_eq!(
        echo.path.segments()[1],
        names::Segment::Parameter("room".to_owned())
    );
    assert_eq!(
        echo.handler
            .websocket()
            .map(|websocket| websocket.compression),
        Some(CompressionMode::On)
    );
    assert_eq!(config.limits.connections, ConnectionCap::Count(20_000));
    assert_eq!(config.limits.connections_per_address, None);
    assert_eq!(config.limits.header_timeout, Duration::from_secs(5));
    assert_eq!(config.limits.idle_timeout, Some(Duration::from_secs(3_600)));
    assert_eq!(config.limits.ping_interval, None);
    assert_eq!(config.limits.drain_time, Duration::ZERO);
    assert_eq!(config.limits.outbox_bytes, 1_000_000);
    assert_eq!(config.api.keys[0].expose(), "a-key-that-is-long-enough");
    assert_eq!((config.server.run_as, config.server.sandbox), (None, false));
}

#[test]
fn the_defaults() {
    let config = good(LISTEN);
    let expected = LimitsConfig {
        refuses_unknown_namespaces: false,
        connections: ConnectionCap::Auto,
        connections_per_address: None,
        connections_per_user: None,
        channels_per_client: 128,
        channel_name_bytes_max: 255,
        memory: MemoryLimit::Auto,
        handshakes_per_address: None,
        header_timeout: Duration::from_secs(10),
        handshake_timeout: Duration::from_secs(10),
        keep_alive_timeout: Duration::from_secs(75),
        idle_timeout: None,
        write_timeout: Duration::from_secs(30),
        ping_interval: Some(Duration::from_secs(25)),
        pong_timeout: Duration::from_secs(10),
        drain_time: Duration::from_secs(10),
        lame_duck_time: Duration::ZERO,
        upgrade_drain_time: Duration::from_secs(3),
        watchdog_timeout: Some(Duration::from_secs(30)),
        outbox_bytes: 256 << 10,
        history_bytes: 256 << 20,
        history_answer_max: 10_000,
        body_bytes_max: 1 << 20,
        header_bytes_max: 16 << 10,
        headers_max: 64,
    };
    assert_eq!(config.limits, expected);
    assert_eq!(config.server.workers, WorkerCount::Auto);
    assert_eq!(config.server.control, Path::new("/etc/veche/veche.sock"));
    assert_eq!(
        config.server.log,
        LogSettings {
            level: LogLevel::Info,
            format: LogFormat::Text,
            file: None,
            rotation: None,
        }
    );
    let route = good(&format!(
        "{LISTEN}[[route]]\npath = \"/\"\nhandler = \"echo\"\n"
    ))
    .routes
    .remove(0);
    let websocket = WebSocketConfig {
        origins: vec![OriginRule::SameHost],
        compression: CompressionMode::Off,
        message_bytes_max: 64 << 10,
        fragments_max: 1_024,
        inflate_ratio_max: Some(200),
        pacing: None,
        drop_policy: None,
        has_positions: false,
    };
    assert_eq!(
        route.handler,
        RouteHandler::Session {
            protocol: protocol("echo").expect("it is registered"),
            app: None,
            identity: None,
            channels: Vec::new(),
            hooks: RouteHooks::default(),
            websocket,
        }
    );
}

#[test]
fn every_default_is_a_value_of_its_directive_and_is_written_as_it_is_read() {
    for directive in directives::all() {
        if let DefaultValue::Toml(text) = directive.default {
            let value = default_of(directive).expect("there is one");
            assert_eq!(
                value.to_string(),
                text,
                "{}.{}",
                directive.section.name(),
                directive.name
            );
        }
    }
}

#[test]
fn names_are_unique_within_a_section_and_documented() {
    for section in Section::ALL {
        let names: Vec<&str> = section
            .directives()
            .map(|directive| directive.name)
            .collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{}", section.header());
    }
    for directive in directives::all() {
        assert!(directive.doc.ends_with('.'), "{}", directive.name);
    }
}

#[test]
fn effective_values_read_back_as_the_same_configuration() {
    for text in [LISTEN, FULL, APPS] {
        let config = good(text);
        let again = good(
            &config
                .effective
                .to_string()
                .replace("****", "a-key-that-is-long-enough"),
        );
        assert_eq!(again.limits, config.limits);
        assert_eq!(again.server, config.server);
        assert_eq!(again.listeners, config.listeners);
        assert_eq!(again.apps, config.apps);
        assert_eq!(again.routes, config.routes);
        assert_eq!(again.api, config.api);
    }
}

#[test]
fn effective_values_name_their_origin() {
    let shown = good(FULL).effective.to_string();
    let lines: Vec<String> = shown
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in [
        "workers = 4 # /etc/veche/veche.toml:3",
        "header_timeout = \"5s\" # /etc/veche/veche.toml:47",
        "idle_timeout = \"1h\" # /etc/veche/veche.toml:48",
        "ping_interval = \"off\" # /etc/veche/veche.toml:49",
        "outbox_bytes = \"1000000B\" # /etc/veche/veche.toml:51",
        "pong_timeout = \"10s\" # default",
        "# name is not set # default",
        "keys = [\"****\"] # /etc/veche/veche.toml:54",
    ] {
        assert!(
            lines.iter().any(|found| found == line),
            "{line}\nis not in\n{shown}"
        );
    }
}

#[test]
fn secrets_are_never_shown() {
    let config = good(FULL);
    for shown in [
        format!("{config:?}"),
        format!("{config:#?}"),
        config.effective.to_string(),
    ] {
        assert!(!shown.contains("long-enough"), "{shown}");
    }
    for keys in [
        "[\"hidden words\"]",
        "\"hidden\"",
        "[\"hidden\", 3]",
        "{ hidden = \"hidden\" }",
    ] {
        let report = checked(&format!("{LISTEN}[api]\nkeys = {keys}")).unwrap_err();
        assert!(
            !format!("{report} {report:?}").contains("hidden"),
            "{report}"
        );
    }
}

#[test]
fn changes_are_classified_by_reload_or_restart() {
    let old = good(FULL);
    assert!(old.effective.changes(&good(FULL).effective).is_empty());
    // The same values on other lines, or written differently, are no change.
    assert!(
        old.effective
            .changes(&good(&format!("# moved\n{FULL}").replace("\"1h\"", "\"60m\"")).effective)
            .is_empty()
    );
    let new = FULL
        .replace("workers = 4", "workers = 2")
        .replace("127.0.0.1:8082", "127.0.0.1:8083")
        .replace("\"5s\"", "\"6s\"")
        .replace("long-enough", "longer-still")
        .replace("root = \"/srv/www\"\n", "root = \"builtin:demo\"\n")
        + "\n[[route]]\npath = \"/new\"\nhandler = \"echo\"\n";
    let changes = old.effective.changes(&good(&new).effective);
    assert_eq!(changes.restart, ["server.workers", "listen[3].address"]);
    assert_eq!(
        changes.reload,
        [
            "route[2].root",
            "limits.header_timeout",
            "api.keys",
            "[[route]] \"/new\" added"
        ]
    );
    let old_apps = good(APPS);
    let new_apps = APPS
        .replace("\"5ms\"", "\"6ms\"")
        .replace("most = 0x10", "most = 17");
    let changes = old_apps.effective.changes(&good(&new_apps).effective);
    assert_eq!(changes.reload, ["app[1].cpu_budget", "app[1].options"]);
    let back = good(&new).effective.changes(&old.effective);
    assert_eq!(
        back.reload.first().map(String::as_str),
        Some("route[2].root")
    );
    assert!(
        back.reload
            .contains(&"[[route]] \"/new\" removed".to_owned()),
        "{back:?}"
    );
}

#[test]
fn a_running_server_keeps_what_needs_a_restart() {
    let running = good(FULL);
    let new = FULL
        .replace("workers = 4", "workers = 2")
        .replace("log = \"debug\"", "log = \"warn\"")
        .replace("name = \"back\"", "name = \"rear\"")
        .replace("listen = \"back\"", "listen = \"rear\"");
    let merged = good(&new).on_top_of(&running);
    assert_eq!(merged.server.workers, running.server.workers);
    assert_eq!(merged.server.log.level, LogLevel::Warn);
    assert_eq!(merged.listeners, running.listeners);
    assert_eq!(merged.routes[0].listeners, [0]);
    assert!(
        merged.routes[2].listeners.is_empty(),
        "no running listener is called rear"
    );
}

#[test]
fn warnings_name_the_risk() {
    let text = r#"
[[listen]]
address = "0.0.0.0:8080"
[[listen]]
address = "0.0.0.0:8081"
role = "internal"
[[listen]]
address = "[::]:8082"
role = "push"
[[route]]
path = "/a"
handler = "push"
identity = "query:user"
[[route]]
path = "/b"
handler = "push"
[[route]]
path = "/c"
handler = "echo"
message_bytes_max = "16MiB"
[[app]]
name = "idle"
script = "api.lua"
[api]
keys = ["short"]
"#;
    let config = good(text);
    let shown: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    let expected = [
        "/etc/veche/veche.toml:5:11: address: the internal listener on 0.0.0.0:8081 is not loopback, so every client that reaches it can read /health and /metrics, and the API keys cross the network as plain text",
        "/etc/veche/veche.toml:8:11: address: the push listener on [::]:8082 is not loopback and requires no key, so every client that reaches it can push to every user",
        "/etc/veche/veche.toml:13:12: identity: \"query:user\" accepts any user name that the client sends; use it only for demos and in trusted networks",
        "/etc/veche/veche.toml:14:1: [[route]] with neither identity nor channels, so nothing can ever be pushed to its clients",
        "/etc/veche/veche.toml:21:1: [[app]] \"idle\": no route uses it",
        "/etc/veche/veche.toml:25:9: keys: a key of less than 16 characters can be guessed",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn the_control_socket_is_found_in_a_file_with_errors() {
    let file = Path::new("/etc/veche/veche.toml");
    for (text, expected) in [
        (
            "[server]\ncontrol = \"a.sock\"\nworkers = \"many\"\n",
            "/etc/veche/a.sock",
        ),
        ("[server]\ncontrol = 3\n", "/etc/veche/veche.sock"),
        ("[server\n", "/etc/veche/veche.sock"),
    ] {
        assert_eq!(
            checked::control_of(file, text),
            Path::new(expected),
            "{text}"
        );
    }
}

/// Random files, and valid files with random changes, yield a report or a configuration, never a panic.
#[test]
fn no_file_makes_it_panic() {
    let mut random = fastrand::Rng::with_seed(2);
    let pieces: Vec<&str> = FULL
        .split_inclusive([' ', '\n', '"', '[', ']', '='])
        .collect();
    let odd = [
        "[", "]", "\"", "'''", "\"\"\"", "\n", "=", ".", "{", "}", "é", "\0", "1e999", "-0", "inf",
        "0x", ",", "#",
    ];
    for round in 0..4_000 {
        let text = match round % 3 {
            0 => {
                let bytes: Vec<u8> = (0..random.usize(0..200)).map(|_| random.u8(..)).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            1 => (0..random.usize(0..80))
                .map(|_| pieces[random.usize(..pieces.len())])
                .collect(),
            _ => {
                let mut text = FULL.to_owned();
                for _ in 0..random.usize(1..6) {
                    let at = (0..=text.len())
                        .filter(|at| text.is_char_boundary(*at))
                        .nth(random.usize(0..text.chars().count()));
                    text.insert_str(at.unwrap_or(0), odd[random.usize(..odd.len())]);
                }
                text
            }
        };
        match checked(&text) {
            Ok(config) => assert!(!config.listeners.is_empty()),
            Err(report) => {
                assert!(!report.problems.is_empty(), "{text}");
                let lines = report.to_string();
                assert_eq!(
                    lines.lines().count(),
                    report.problems.len(),
                    "a line for each problem: {lines:?}"
                );
            }
        }
        checked::control_of(Path::new("veche.toml"), &text);
    }
}
