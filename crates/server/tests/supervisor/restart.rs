//! `veche restart`: a new server process serves before the old one drains, with the configuration from the file.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::ask::{RELOAD, ask};
use crate::support::process::{is_alive, kill};
use crate::support::{Seen, Socket, now, until};
use crate::upgrade::start;
use crate::veche::Veche;

const CLIENTS: usize = 100;

fn restart(veche: &Veche) -> Output {
    Command::new(veche.program())
        .args(["restart", "-c"])
        .arg(veche.folder().join("veche.toml"))
        .output()
        .expect("it runs")
}

#[track_caller]
fn restarted(veche: &Veche) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = restart(veche);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

/// Returns a loopback address with a free port.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound")
}

#[test]
fn clients_are_closed_over_the_drain_time_and_reconnect_at_once() {
    let veche = start("restart", "drain_time = \"2s\"\nupgrade_drain_time = \"0\"");
    let (pid, old) = (veche.pid(), veche.server_pid());
    let address = veche.address();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut session = veche.open();
            thread::spawn(move || {
                let seen = session.next();
                let closed = now();
                assert!(matches!(seen, Seen::Close(Some(1012), _)), "{seen:?}");
                let mut again = Socket::open(address, "/");
                assert!(again.is_alive());
                (closed, now() - closed)
            })
        })
        .collect();
    let printed = restarted(&veche);
    let expected = format!(
        "the old one had {CLIENTS} connections and closes them within 2 s (limits.drain_time)"
    );
    assert!(printed.contains(&expected), "{printed}");
    let times = clients
        .into_iter()
        .map(|client| client.join().expect("served"));
    let (closed, waits): (Vec<_>, Vec<_>) = times.unzip();
    let longest = waits.into_iter().max().expect("some");
    let first = closed.iter().min().expect("some");
    let spread = *closed.iter().max().expect("some") - *first;
    println!("{CLIENTS} clients closed over {spread:?}; the longest wait was {longest:?}");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert!(spread > Duration::from_secs(1), "all within {spread:?}");
    until("the old server process to end", || !is_alive(old));
    assert_eq!(veche.status()["supervisor"]["pid"], pid);
    assert_ne!(veche.server_pid(), old);
}

#[test]
fn what_a_reload_cannot_change_is_in_force_after_a_restart() {
    let veche = start("restart-config", "drain_time = \"0\"");
    let [second, third] = [free(), free()];
    let listen = |more: &[SocketAddr]| {
        veche.write_config("drain_time = \"0\"", "workers = 1");
        let file = veche.folder().join("veche.toml");
        let mut text = std::fs::read_to_string(&file).expect("a config");
        for address in more {
            text.push_str(&format!("[[listen]]\naddress = \"{address}\"\n"));
        }
        std::fs::write(&file, text).expect("written");
    };
    listen(&[second, third]);
    restarted(&veche);
    veche.await_status("ready", |status| status["state"] == "ready");
    assert_eq!(veche.status()["report"]["workers"], 1);
    for address in [veche.address(), second, third] {
        assert!(Socket::open(address, "/").is_alive(), "{address}");
    }
    // One address is removed and another added.
    listen(&[third]);
    restarted(&veche);
    veche.await_status("ready", |status| status["state"] == "ready");
    assert!(Socket::open(third, "/").is_alive());
    until("the address to be free", || {
        TcpStream::connect(second).is_err()
    });
    let answer = ask(&veche.control(), RELOAD).expect("in force");
    assert_eq!(answer["needs_restart"], Value::Array(Vec::new()));
    // The sockets survive the end of the server process.
    let old = veche.server_pid();
    kill(old, rustix::process::Signal::KILL);
    veche.await_another_than(old);
    assert!(Socket::open(third, "/").is_alive());
}

#[test]
fn a_restart_that_fails_changes_nothing() {
    let veche = start("restart-bad", "drain_time = \"0\"");
    let old = veche.server_pid();
    let mut session = veche.open();
    let held = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = format!(
        "\n[[listen]]\naddress = \"{}\"\n",
        held.local_addr().expect("bound")
    );
    let file = veche.folder().join("veche.toml");
    let text = std::fs::read_to_string(&file).expect("a config");
    for (bad, expected) in [
        ("drain_tiem = 1".to_owned(), "drain_tiem"),
        (taken, "in use by another process"),
    ] {
        std::fs::write(&file, format!("{text}{bad}")).expect("written");
        let output = restart(&veche);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{message}");
        assert!(message.contains(expected), "{message}");
        assert_eq!(veche.server_pid(), old);
        assert!(session.is_alive());
    }
    std::fs::write(&file, text).expect("written");
    restarted(&veche);
}
