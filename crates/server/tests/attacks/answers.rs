//! Large answers that their clients do not read: how much memory they take, and that it comes back.

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::raw::{TEXT, connect_with, frame, narrow, upgrade};
use crate::support::{Lines, Options, Server, Setup, Socket, chosen_io, now, process, until};

/// `memory_limit`.
const LIMIT_KIB: u64 = 64 << 10;

/// By how much it may be exceeded: what is answered between two looks at what is in use, and what is given back late.
const OVER_KIB: u64 = 32 << 10;

/// What may stay of it.
const GIVEN_BACK_KIB: u64 = 12 << 10;

const ROUTES: &str = "[[route]]\npath = \"/centrifuge\"\nhandler = \"centrifuge\"\n\
    identity = \"query:user\"\n\
    [[namespace]]\nname = \"long\"\nhistory_size = 20_000\nhistory_ttl = \"1h\"\nsubscribe = \"client\"\n";

const PUBLICATIONS: u32 = 20_000;

/// Each is answered with a page of eight megabytes.
const CLIENTS: usize = 40;

fn say(socket: &mut TcpStream, command: &Value) {
    let frame = frame(TEXT, command.to_string().as_bytes());
    socket.write_all(&frame).expect("the server reads");
}

/// A client in the channel that reads nothing any more.
fn deaf(server: &Server, number: usize) -> TcpStream {
    let socket = connect_with(server.public, narrow);
    let mut socket = upgrade(socket, &format!("/centrifuge?user=deaf{number}"), "");
    say(&mut socket, &json!({ "id": 1, "connect": {} }));
    let subscribe = json!({ "id": 2, "subscribe": { "channel": "long:1" } });
    say(&mut socket, &subscribe);
    socket
}

/// Clients ask for several times the limit at once. The limit holds, a client that is connected is served meanwhile,
/// and once they are gone the server takes handshakes again without having been restarted.
#[test]
fn histories_that_nobody_reads() {
    let setup = Setup {
        io: chosen_io(),
        workers: 1,
    };
    let server = Server::with(
        setup,
        &Options {
            limits: "memory_limit = \"64MiB\"",
            routes: ROUTES,
            ..Options::default()
        },
    );
    let mut bystander = Socket::open(server.public, "/echo");
    let mut lines = Lines::connect(server.push);
    let line = json!({ "channel": "long:1", "data": "x".repeat(400) });
    let line = format!("{line}\n").repeat(100);
    (0..PUBLICATIONS / 100).for_each(|_| lines.raw(line.as_bytes()));
    lines.finish();

    let pid = server.pid();
    let before = process::rss_kib(pid);
    process::forget_peak(pid);
    let mut deaf: Vec<_> = (0..CLIENTS).map(|number| deaf(&server, number)).collect();
    let history = json!({ "id": 3, "history": { "channel": "long:1", "limit": -1 } });
    deaf.iter_mut().for_each(|socket| say(socket, &history));
    let begun = now();
    let mut worst = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(3) {
        let asked = now();
        bystander.say("hello");
        assert_eq!(bystander.text(), "hello");
        worst = worst.max(asked.elapsed());
        thread::sleep(Duration::from_millis(5));
    }
    let peak = process::peak_kib(pid);
    eprintln!("peak {peak} KiB, worst echo {worst:?}");
    until("the server to say that memory is short", || {
        server.log().contains("memory_limit is reached")
    });
    assert!(peak > LIMIT_KIB, "{peak} KiB: nothing was asked for");
    // Pages of files are resident, too, but do not count.
    assert!(
        peak <= before + LIMIT_KIB + OVER_KIB,
        "{before} KiB grew to {peak}"
    );

    drop(deaf);
    until("handshakes to be taken again", || {
        Socket::try_open(server.public, "/echo").is_ok()
    });
    until("the memory to be given back", || {
        process::rss_kib(pid) <= before + GIVEN_BACK_KIB
    });
    assert_eq!(server.pid(), pid, "the same process all along");
}
