//! `veche migrate`: writes a valid configuration and lists everything that it leaves out.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::Folder;

/// A configuration of Centrifugo 5, from a site with PHP.
const VERSION_5: &str = r#"{
  "token_hmac_secret_key": "0123456789abcdef0123456789abcdef",
  "token_audience": "site",
  "separate_subscription_token_config": true,
  "subscription_token_hmac_secret_key": "fedcba9876543210fedcba9876543210",
  "token_issuer": "https://site.example",
  "api_key": "5f0a3f29-e2c5-4e2a-9f39-1f1c2a7cba93",
  "admin": true,
  "admin_password": "hidden-password",
  "admin_secret": "hidden-secret",
  "allowed_origins": ["https://site.example", "https://*.site.example", "not an origin"],
  "address": "127.0.0.1",
  "port": 8000,
  "health": true,
  "prometheus": true,
  "engine": "redis",
  "redis_address": "redis://localhost:6379",
  "log_level": "debug",
  "client_user_connection_limit": 20,
  "client_channel_limit": 128,
  "user_subscribe_to_personal": true,
  "sse": true,
  "proxy_rpc_endpoint": "http://127.0.0.1:3000/centrifugo/rpc",
  "proxy_subscribe_endpoint": "http://127.0.0.1:3000/centrifugo/subscribe",
  "proxy_subscribe_timeout": "2s",
  "proxy_http_headers": ["Cookie", "X-Request-Id"],
  "presence": true,
  "allow_subscribe_for_client": true,
  "namespaces": [
    {
      "name": "chat", "presence": true, "join_leave": true, "force_push_join_leave": true,
      "history_size": 100, "history_ttl": "300s", "force_recovery": true,
      "allow_subscribe_for_client": true, "allow_publish_for_subscriber": true,
      "allow_history_for_subscriber": true, "allow_presence_for_client": true, "channel_regex": "^[a-z]+$"
    },
    { "name": "price", "history_size": 1, "history_ttl": "1h", "force_recovery": true,
      "force_recovery_mode": "cache", "allowed_delta_types": ["fossil"], "delta_publish": true },
    { "name": "room", "proxy_subscribe": true, "allow_publish_for_client": true },
    { "name": "orders", "allow_subscribe_for_anonymous": true }
  ]
}"#;

const EXPECTED_5: &str = r#"
[server]
log = "debug"

[[listen]]
address = "127.0.0.1:8000"

[[listen]]
address = "127.0.0.1:9000"
role = "internal"

[[route]]
path = "/connection/*"
handler = "centrifuge"
identity = "jwt"
anonymous = "token"
origins = ["https://site.example", "https://*.site.example"]

[[route]]
path = "/emulation"
handler = "centrifuge"
identity = "jwt"
anonymous = "token"
origins = ["https://site.example", "https://*.site.example"]

[[route]]
path = "/api/*"
handler = "api"

[jwt]
secret_file = "jwt.secret"
require_exp = false
audience = ["site"]
issuer = ["https://site.example"]

[subscription_jwt]
secret_file = "subscription.secret"
require_exp = false

[hooks]
subscribe = "http://127.0.0.1:3000/centrifugo/subscribe"
rpc = "http://127.0.0.1:3000/centrifugo/rpc"
timeout = "2s"
headers = ["cookie", "x-request-id"]

[limits]
unknown_namespace = "error"
connections_per_user = 20
channels_per_client = 128

[api]
keys = [{ file = "api.key" }]
unknown_fields = "accept"

[[namespace]]
name = ""
presence = true
leave_delay = "off"
subscribe = "client"
allow_presence = "none"

[[namespace]]
name = "chat"
history_size = 100
history_ttl = "5m"
presence = true
join_leave = true
force_push_join_leave = true
leave_delay = "off"
subscribe = "client"
publish = "subscriber"
allow_presence = "client"

[[namespace]]
name = "price"
history_size = 1
history_ttl = "1h"
recovery = "latest"
delta = "fossil"
delta_publish = true
subscribe = "token"
allow_history = "none"

[[namespace]]
name = "room"
subscribe = "hook"
publish = "client"

[[namespace]]
name = "orders"
subscribe = "token"
"#;

const VERSION_6: &str = r#"{
  "http_server": { "port": "8443", "internal_port": "9100" },
  "client": {
    "allowed_origins": ["*"],
    "ping_interval": "20s",
    "user_connection_limit": 5,
    "subscribe_to_user_personal_channel": { "enabled": true, "personal_channel_namespace": "personal" },
    "proxy": {
      "connect": {
        "enabled": true, "endpoint": "https://app.example/connect", "timeout": "1500ms",
        "http_headers": ["Cookie"], "http": { "static_headers": { "X-Secret": "hidden" } }
      },
      "refresh": { "enabled": true, "endpoint": "https://app.example/refresh" }
    }
  },
  "http_api": { "key": "4d1ac14e-99b6-44d7-a9f0-b7b5b0a43c7a" },
  "channel": {
    "history_meta_ttl": "720h",
    "without_namespace": { "allow_subscribe_for_client": true },
    "namespaces": [
      { "name": "news", "history_size": 10, "history_ttl": "10m", "allow_tags_filter": true,
        "publish_proxy_enabled": true },
      { "name": "personal" }
    ],
    "proxy": { "publish": { "endpoint": "https://app.example/publish" } }
  },
  "websocket": { "compression": true, "message_size_limit": 131072 },
  "http_stream": { "enabled": false },
  "shutdown": { "timeout": "30s" },
  "uni_grpc": { "enabled": true, "port": 11000 },
  "grpc_api": { "enabled": false, "port": 0 },
  "log": { "level": "none" }
}"#;

const EXPECTED_6: &str = r#"
[server]
log = "off"

[[listen]]
address = "0.0.0.0:8443"

[[listen]]
address = "127.0.0.1:9100"
role = "internal"

[[route]]
path = "/connection/*"
handler = "centrifuge"
identity = "none"
origins = ["*"]
compression = true
message_bytes_max = "131072B"

[hooks]
connect = "https://app.example/connect"
refresh = "https://app.example/refresh"
publish = "https://app.example/publish"
timeout = "1500ms"
headers = ["cookie"]

[limits]
unknown_namespace = "error"
connections_per_user = 5
ping_interval = "20s"
drain_time = "30s"

[api]
keys = [{ file = "api.key" }]
unknown_fields = "accept"

[[namespace]]
name = ""
subscribe = "client"

[[namespace]]
name = "news"
history_size = 10
history_ttl = "10m"
position_ttl = "720h"
tags_filter = true
subscribe = "none"
publish = "hook"
allow_history = "none"

[[namespace]]
name = "personal"
subscribe = "none"
"#;

/// A part of the Centrifugo 6 configuration, in TOML instead of JSON.
const VERSION_6_TOML: &str = r#"
[client]
allow_anonymous_connect_without_token = true
channel_limit = 2000

[client.token]
hmac_secret_key = "0123456789abcdef0123456789abcdef"
hmac_previous_secret_key = "the-secret-of-last-year-was-this-one"
hmac_previous_secret_key_valid_until = 1900000000

[[channel.namespaces]]
name = "chat"
presence = true
"#;

fn write(folder: &Folder, name: &str, text: &str) {
    fs::write(folder.0.join(name), text).expect("writable");
}

/// Returns the written configuration without its leading comments, and the messages.
fn migrated(folder: &Folder, name: &str, config: &str) -> (String, String) {
    write(folder, name, config);
    fs::create_dir(folder.0.join(format!("{name}.d"))).expect("writable");
    let output = format!("{name}.d/veche.toml");
    let (code, out, printed) = folder.run(&["migrate", "centrifugo", name, "-o", &output]);
    assert_eq!((code, out.as_str()), (0, ""), "{printed}");
    let text = fs::read_to_string(folder.0.join(&output)).expect("written");
    let (head, rest) = text.split_once("\n\n").expect("comments, and sections");
    assert!(head.lines().all(|line| line.starts_with("# ")), "{head}");
    for line in head.lines().skip(1) {
        let note = line.strip_prefix("# ").unwrap_or_default();
        assert!(printed.contains(note), "{note}: {printed}");
    }
    let (code, out, err) = folder.run(&["check", "-c", &output]);
    assert_eq!(code, 0, "{out}{err}{text}");
    (format!("\n{rest}"), printed)
}

#[test]
fn configurations_of_centrifugo_become_those_of_veche() {
    let folder = Folder::new("migrate");
    let (text, printed) = migrated(&folder, "five.json", VERSION_5);
    assert_eq!(text, EXPECTED_5);
    for note in [
        "/health and /metrics are on the internal listener, port 9000",
        "allowed_origins: \"not an origin\" is not a valid origin",
        "engine redis: the new configuration is for one node",
        "no counterpart: redis_address",
        "namespace orders: allow_subscribe_for_anonymous: has no effect without allow_…_for_client",
        "no counterpart: namespace chat: channel_regex",
        "wrote token_hmac_secret_key into five.json.d/jwt.secret",
        "wrote subscription_token_hmac_secret_key into five.json.d/subscription.secret",
        "wrote api_key into five.json.d/api.key",
    ] {
        assert!(printed.contains(note), "{note}: {printed}");
    }
    assert_eq!(printed.matches("no counterpart").count(), 2, "{printed}");
    assert!(
        !printed.contains("hidden") && !text.contains("hidden"),
        "{printed}"
    );
    let secret = folder.0.join("five.json.d/jwt.secret");
    let mode = fs::metadata(&secret).expect("written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read_to_string(secret).expect("text");
    assert_eq!(secret, "0123456789abcdef0123456789abcdef\n");

    let (text, printed) = migrated(&folder, "six.json", VERSION_6);
    assert_eq!(text, EXPECTED_6);
    for note in [
        "no counterpart: client.proxy.connect.http.static_headers.X-Secret",
        "no counterpart: uni_grpc.port",
        "personal channels are called #USER",
    ] {
        assert!(printed.contains(note), "{note}: {printed}");
    }
    assert_eq!(printed.matches("no counterpart").count(), 3, "{printed}");

    let (text, printed) = migrated(&folder, "six.toml", VERSION_6_TOML);
    for line in [
        "identity = \"jwt\"\nanonymous = \"all\"\n",
        "previous_secret_file = \"jwt.previous\"\nprevious_secret_until = 1900000000\n",
        "channels_per_client = 1024\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(
        printed.contains("channels_per_client is limited to 1024"),
        "{printed}"
    );
    assert!(
        text.contains("name = \"chat\"\npresence = true\n"),
        "{text}"
    );
    assert!(!printed.contains("no counterpart"), "{printed}");
}

#[test]
fn passwords_in_urls_are_not_shown_on_the_terminal() {
    let folder = Folder::new("migrate-masked");
    let config = r#"{
        "proxy_rpc_endpoint": "grpc://ann:hidden@back.example:9000/rpc?key=hidden",
        "allowed_origins": ["redis://bob:hidden@site.example"]
    }"#;
    write(&folder, "c.json", config);
    let (code, out, printed) = folder.run(&["migrate", "centrifugo", "c.json", "-o", "veche.toml"]);
    assert_eq!((code, out.as_str()), (0, ""), "{printed}");
    for shown in [
        "\"grpc://***@back.example:9000/rpc?***\"",
        "\"redis://***@site.example\"",
    ] {
        assert!(printed.contains(shown), "{shown}: {printed}");
    }
    assert!(!printed.contains("hidden"), "{printed}");
    let text = fs::read_to_string(folder.0.join("veche.toml")).expect("written");
    assert!(
        text.contains("grpc://ann:hidden@back.example:9000/rpc?key=hidden"),
        "the file is its owner's: {text}"
    );
}

#[test]
fn migrate_overwrites_nothing_and_reports_unreadable_files() {
    let folder = Folder::new("migrate-not");
    write(&folder, "five.json", VERSION_5);
    write(&folder, "veche.toml", "mine");
    let (code, out, err) = folder.run(&["migrate", "centrifugo", "five.json", "-o", "veche.toml"]);
    assert_eq!((code, out.as_str()), (5, ""), "{err}");
    assert!(err.contains("veche.toml: "), "{err}");
    let kept = fs::read_to_string(folder.0.join("veche.toml")).expect("text");
    assert_eq!(kept, "mine");
    // If one of the files exists already, none of them is written.
    write(&folder, "api.key", "mine");
    let (code, _, err) = folder.run(&["migrate", "centrifugo", "five.json", "-o", "new.toml"]);
    assert!(
        code == 5 && err.contains("api.key: the file already exists"),
        "{err}"
    );
    assert!(!folder.0.join("new.toml").exists() && !folder.0.join("jwt.secret").exists());
    // Secrets are not written to standard output.
    let (code, out, err) = folder.run(&["migrate", "centrifugo", "five.json"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.ends_with(EXPECTED_5), "{out}");
    assert!(
        err.contains("write the value of api_key to the file api.key"),
        "{err}"
    );
    assert!(!out.contains("0123456789abcdef") && !err.contains("0123456789abcdef"));
    for (text, why) in [
        ("port: 8000\n", "Convert YAML with"),
        ("{\"port\": ", "six.json: EOF"),
    ] {
        write(&folder, "six.json", text);
        let (code, out, err) = folder.run(&["migrate", "centrifugo", "six.json"]);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(why), "{err}");
    }
    let (code, _, err) = folder.run(&["migrate", "centrifugo", "none.json"]);
    assert_eq!(code, 5, "{err}");
}
