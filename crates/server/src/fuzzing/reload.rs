//! Reloads arbitrary configurations: each is accepted or rejected with an error, and no connection is lost either way.
//!
//! The input is the text of several files, separated by lines of `---`.

use veche_config as config;
use veche_net::{ConnectionId, RemoteState, Simulated};

use crate::stage::{FuzzStage, file, good};

const CONFIG: &str = r#"
[server]
workers = 1
[[listen]]
address = "127.0.0.1:0"
hosts = ["*"]
[[listen]]
address = "127.0.0.1:0"
role = "internal"
[[route]]
path = "/echo"
handler = "echo"
[[route]]
path = "/app"
handler = "lua"
script = "app.lua"
[[route]]
path = "/*"
handler = "static"
root = "site"
[limits]
ping_interval = "off"
keep_alive_timeout = "1d"
"#;

const FILES_MAX: usize = 6;

/// The frame of the text message `hello` from a client; `ECHO` is the same message from the server.
const MESSAGE: &[u8] = &[0x81, 0x85, 0, 0, 0, 0, b'h', b'e', b'l', b'l', b'o'];
const ECHO: &[u8] = &[0x81, 5, b'h', b'e', b'l', b'l', b'o'];

/// Runs one input; panics if a check fails.
pub fn reload(data: &[u8]) {
    let started = good(CONFIG);
    let mut current = started.clone();
    let mut stage = FuzzStage::new(&started);
    let echo = open(&mut stage, "/echo");
    let app = open(&mut stage, "/app");
    let waiting = stage.dial(0);
    let mut all = vec![echo, app, waiting];
    let text = String::from_utf8_lossy(data);
    for text in text.split("\n---\n").take(FILES_MAX) {
        let read = match config::parse(&file(), text) {
            Ok(read) => read,
            Err(report) => {
                assert!(
                    !report.to_string().is_empty(),
                    "a configuration was refused without a message"
                );
                continue;
            }
        };
        // `veche config` can print the configuration. Compared with itself, the configuration has no changes to reload.
        assert!(!read.effective.to_string().is_empty());
        let same = read.effective.changes(&read.effective);
        let is_same = same.reload.is_empty() && same.restart.is_empty();
        assert!(is_same, "a configuration differs from itself");
        let _ = current.effective.changes(&read.effective);
        let config = read.on_top_of(&started);
        match stage.reload(&config) {
            Ok(()) => current = config,
            Err(why) => assert!(
                !why.is_empty(),
                "a configuration was refused without a message"
            ),
        }
        stage.settle();
        // Existing connections stay open, with the settings under which they were opened.
        for id in [echo, app] {
            stage.network().write(id, MESSAGE.to_vec());
        }
        stage.settle();
        let (received, state) = stage.read(echo);
        assert!(
            state == RemoteState::Open,
            "a reload has dropped a connection"
        );
        assert_eq!(received, ECHO, "a reload has lost a message");
        // The connection of the application may be closed, if the reload has removed its application.
        let _ = stage.read(app);
        // A new connection is answered or rejected.
        let newcomer = stage.dial(0);
        let request = b"GET /index.html HTTP/1.1\r\nHost: t\r\n\r\n".to_vec();
        stage.network().write(newcomer, request);
        stage.settle();
        all.push(newcomer);
    }
    stage.finish(&all);
}

/// Opens a WebSocket on the first listener.
fn open(stage: &mut FuzzStage<Simulated>, path: &str) -> ConnectionId {
    let id = stage.dial(0);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stage.network().write(id, request.into_bytes());
    stage.settle();
    let (answer, _) = stage.read(id);
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "it opens");
    id
}
