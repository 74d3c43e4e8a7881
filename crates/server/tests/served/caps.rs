//! At the connection limit, or without free descriptors, new clients wait, no worker spins, and
//! existing clients are served.

use std::io::Read;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::{Http, Lines, Options, Server, Socket, call, now, on_all, process, until};

#[test]
fn at_the_cap_the_next_one_waits() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "connections = 50",
                ..Options::default()
            },
        );
        let mut inside: Vec<Socket> = (0..50)
            .map(|i| Socket::open(server.public, &format!("/ws?user=u{i}")))
            .collect();
        // The pause gives the other workers time to notice that the connection limit is reached.
        thread::sleep(Duration::from_millis(100));
        let public = server.public;
        let waiting: Vec<_> = (0..10)
            .map(|i| thread::spawn(move || Socket::open(public, &format!("/ws?user=late{i}"))))
            .collect();
        let pid = server.pid();
        let before = process::cpu_ticks(pid);
        thread::sleep(Duration::from_millis(1500));
        let ticks = process::cpu_ticks(pid) - before;
        assert!(
            ticks <= 30,
            "{ticks} hundredths of a second in one and a half seconds of waiting"
        );
        assert!(
            waiting.iter().all(|late| !late.is_finished()),
            "a connection was accepted over the cap"
        );
        assert_eq!(server.connections(), 50);
        // Existing clients are served while the limit is reached.
        assert!(inside.iter_mut().step_by(7).all(Socket::is_alive));
        for leaving in inside.drain(..25) {
            leaving.leave();
        }
        let mut late: Vec<Socket> = waiting
            .into_iter()
            .map(|late| late.join().expect("served"))
            .collect();
        assert!(late.iter_mut().all(Socket::is_alive));
        assert_eq!(
            call(
                server.internal,
                "push",
                &json!({"user": "late3", "data": 1})
            ),
            json!({"result": {"handed": 1}})
        );
        assert!(
            server.log().contains("the connection limit is reached"),
            "said once"
        );
    });
}

#[test]
fn one_address_has_its_share() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "connections_per_address = 5",
                ..Options::default()
            },
        );
        // The limit per address does not count connections of the back end, since they all have the same address.
        let mut back_ends: Vec<Lines> = (0..10).map(|_| Lines::connect(server.push)).collect();
        for lines in &mut back_ends {
            assert_eq!(
                lines.ask(&json!({"user": "u", "data": 1, "ack": true})),
                json!({"result": {"handed": 0, "note": "the user has no connection"}})
            );
        }
        let mut inside: Vec<Socket> = (0..5)
            .map(|_| Socket::open(server.public, "/echo"))
            .collect();
        assert!(
            Socket::try_open(server.public, "/echo").is_err(),
            "the sixth is closed"
        );
        assert!(inside.iter_mut().all(Socket::is_alive));
        inside.pop().expect("five").leave();
        until("its place to be free", || {
            Socket::try_open(server.public, "/echo").is_ok()
        });
    });
}

/// The connection limit is derived from the descriptor limit at startup; twice as many clients do
/// no harm.
#[test]
fn few_descriptors_are_enough() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                descriptors: Some(160),
                ..Options::default()
            },
        );
        let clients: Vec<TcpStream> = (0..320)
            .map(|_| TcpStream::connect(server.public).expect("the kernel's queue takes it"))
            .collect();
        thread::sleep(Duration::from_millis(300));
        // The driver `delayed` reports connections late, so the server rejects some of them late.
        if setup.io == "epoll" {
            assert!(server.connections() <= 160 - 64 + 2);
        }
        drop(clients);
        let answer = Http::connect(server.internal)
            .request("GET", "/health", "", b"")
            .expect("served");
        assert_eq!(answer.status, 200);
        let mut after = Socket::open(server.public, "/echo");
        assert!(after.is_alive());
    });
}

/// Descriptors run out before the connection limit is reached. The test lowers the process's descriptor limit, as an
/// operator might.
#[test]
fn out_of_descriptors_it_waits_and_goes_on() {
    on_all(|setup| {
        let server = Server::start(setup);
        let mut inside = Socket::open(server.public, "/echo");
        let pid = server.pid();
        process::limit_descriptors(pid, process::descriptors(pid) as u64 + 4);
        let clients: Vec<TcpStream> = (0..40)
            .map(|_| TcpStream::connect(server.public).expect("the kernel's queue takes it"))
            .collect();
        let before = process::cpu_ticks(pid);
        thread::sleep(Duration::from_secs(1));
        let ticks = process::cpu_ticks(pid) - before;
        assert!(
            ticks <= 30,
            "{ticks} hundredths of a second in one second without descriptors"
        );
        assert!(inside.is_alive());
        until("a word of it in the log", || {
            server.log().contains("can't accept")
        });
        process::limit_descriptors(pid, 1024);
        let began = now();
        for mut client in clients {
            // The connection is closed by the server because it is idle, or by the test.
            client
                .set_read_timeout(Some(Duration::from_millis(1)))
                .expect("a socket");
            let _ = client.read(&mut [0; 1]);
        }
        let mut after = Socket::open(server.public, "/echo");
        assert!(after.is_alive());
        assert!(now() - began < Duration::from_secs(5));
    });
}
