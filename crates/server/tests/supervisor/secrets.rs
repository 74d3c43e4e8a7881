//! Tests of secrets in files and in the environment: the secrets open the API and are never shown.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::ask::{RELOAD, ask};
use crate::support::SOON;
use crate::veche::Veche;

const HERE: &str = "secret-that-stands-in-the-config";
const FILE: &str = "secret-that-is-in-a-file-of-its-own";
const VARIABLE: &str = "secret-that-is-in-the-environment";
const NEW: &str = "secret-that-has-taken-its-place";

fn exchange(address: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(SOON)).expect("set");
    client.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("text");
    answer
}

fn push(address: SocketAddr, key: &str) -> u16 {
    let body = r#"{"user":"ann","data":"hello"}"#;
    let request = format!(
        "POST /api/push HTTP/1.0\r\nHost: localhost\r\nX-API-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(address, &request);
    let status = answer.split(' ').nth(1).expect("a status line");
    status.parse().expect("a number")
}

fn veche(veche: &Veche, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_veche"));
    command
        .args(arguments)
        .arg("-c")
        .arg(veche.folder().join("veche.toml"));
    let output = command
        .env("VECHE_TEST_KEY", VARIABLE)
        .output()
        .expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("text")
}

#[test]
fn secrets_open_the_api_and_are_never_printed() {
    let mut server = Veche::prepare("secrets", "");
    let key_file = server.folder().join("api.key");
    fs::write(&key_file, format!("{FILE}\n")).expect("written");
    fs::write(
        server.folder().join("veche.toml"),
        format!(
            "[server]\ncontrol = \"veche.sock\"\nlog = \"trace\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"internal\"\n\
             [api]\nkeys = [{{ file = \"api.key\" }}, {{ env = \"VECHE_TEST_KEY\" }}, \"{HERE}\"]\n"
        ),
    )
    .expect("written");
    server.spawn_with(|command| command.env("VECHE_TEST_KEY", VARIABLE));
    server.await_status("ready", |status| status["state"] == "ready");
    let status = server.status();
    let address: SocketAddr = status["listeners"][0]["address"]
        .as_str()
        .and_then(|address| address.parse().ok())
        .expect("an address");
    for key in [HERE, FILE, VARIABLE] {
        assert_eq!(push(address, key), 200, "{key}");
    }
    assert_eq!(push(address, "api.key"), 401);
    // A new key in the key file takes effect at a reload, without a restart.
    fs::write(&key_file, NEW).expect("written");
    ask(&server.control(), RELOAD).expect("taken");
    assert_eq!((push(address, NEW), push(address, FILE)), (200, 401));
    // An unavailable secret is reported by its source, and the old secrets stay in force.
    fs::remove_file(&key_file).expect("removed");
    let refused = ask(&server.control(), RELOAD).expect_err("refused");
    assert!(
        refused.contains("api.key: there is no such file"),
        "{refused}"
    );
    assert_eq!(push(address, NEW), 200);
    fs::write(&key_file, NEW).expect("written");

    let config = veche(&server, &["config"]);
    assert!(
        config.contains("keys = [{ file = \"api.key\" }, { env = \"VECHE_TEST_KEY\" }, \"****\"]"),
        "{config}"
    );
    let command_line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
    let command_lines = [
        command_line(server.pid()),
        command_line(server.server_pid()),
    ]
    .concat();
    let outputs = [
        config,
        veche(&server, &["check"]),
        veche(&server, &["status"]),
        veche(&server, &["status", "--json"]),
        veche(&server, &["status", "--slow"]),
        exchange(address, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n"),
        exchange(
            address,
            &format!("GET /api/info HTTP/1.0\r\nHost: localhost\r\nX-API-Key: {HERE}\r\n\r\n"),
        ),
        String::from_utf8_lossy(&command_lines).into_owned(),
        refused,
        server.log(),
    ];
    for (place, text) in outputs.iter().enumerate() {
        assert!(!text.is_empty(), "output {place}");
        for secret in [HERE, FILE, VARIABLE, NEW, "secret-that"] {
            assert!(
                !text.contains(secret),
                "output {place} says {secret}:\n{text}"
            );
        }
    }
}
