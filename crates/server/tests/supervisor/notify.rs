//! Notifications to systemd, received by a socket of the test.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::Signal;

use crate::ask::{RELOAD, ask};
use crate::support::SOON;
use crate::veche::Veche;

/// Returns the next message in which a line begins with `line`. Adds the number of watchdog messages before that
/// message to `beats`.
fn next(socket: &UnixDatagram, line: &str, beats: &mut u32) -> String {
    let mut bytes = [0; 4096];
    loop {
        let length = socket
            .recv(&mut bytes)
            .unwrap_or_else(|error| panic!("no {line}: {error}"));
        let message = String::from_utf8(bytes[..length].to_vec()).expect("text");
        *beats += u32::from(message == "WATCHDOG=1");
        if message.lines().any(|found| found.starts_with(line)) {
            return message;
        }
    }
}

fn notified(name: &str, address: &SocketAddr, shown: &str) {
    let socket = UnixDatagram::bind_addr(address).expect("a socket");
    socket.set_read_timeout(Some(SOON)).expect("set");
    let mut veche = Veche::prepare(name, "drain_time = \"100ms\"");
    let mut beats = 0;
    veche.spawn_with(|command| {
        command
            .env("NOTIFY_SOCKET", shown)
            .env("WATCHDOG_USEC", "50000")
    });
    next(&socket, "READY=1", &mut beats);
    for _ in 0..3 {
        next(&socket, "WATCHDOG=1", &mut beats);
    }
    assert!(beats >= 3);
    veche.signal(Signal::HUP);
    let reloading = next(&socket, "RELOADING=1", &mut beats);
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    next(&socket, "READY=1", &mut beats);
    // systemd is also notified of the end of a reload that was rejected.
    fs::write(veche.folder().join("veche.toml"), "nonsense").expect("written");
    ask(&veche.control(), RELOAD).expect_err("refused");
    next(&socket, "RELOADING=1", &mut beats);
    next(&socket, "READY=1", &mut beats);

    // The server process has no access to systemd's socket: only the supervisor represents the service.
    let server = veche.server_pid();
    let environment = fs::read(format!("/proc/{server}/environ")).expect("it runs");
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("NOTIFY_SOCKET"), "{environment}");
    crate::kill(server, Signal::KILL);
    let died = next(&socket, "STATUS=the server process died", &mut beats);
    assert!(died.contains("signal 9"), "{died}");
    next(&socket, "READY=1", &mut beats);

    veche.signal(Signal::TERM);
    next(&socket, "STOPPING=1", &mut beats);
    assert_eq!(veche.exit_code(), Some(0));
}

#[test]
fn systemd_is_notified_by_a_path() {
    let path = std::env::temp_dir().join(format!("veche-notify-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    let address = SocketAddr::from_pathname(&path).expect("short");
    notified("notify", &address, path.to_str().expect("text"));
    let _ = fs::remove_file(&path);
}

#[test]
fn systemd_is_notified_by_an_abstract_address() {
    let name = format!("veche-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("short");
    notified("abstract", &address, &format!("@{name}"));
}

#[test]
fn an_unreachable_notify_socket_does_not_stop_the_server() {
    let mut veche = Veche::prepare("mute", "");
    veche.spawn_with(|command| command.env("NOTIFY_SOCKET", "/nowhere/at/all"));
    veche.await_status("ready", |status| status["state"] == "ready");
}
