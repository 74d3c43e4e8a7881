//! Attacks with large responses that clients do not read. Most tests measure the memory and the worker time that these
//! responses cost. Another test fills the memory up to `memory_limit`: the limit has to hold, and the memory has to be
//! released afterwards.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::attack::{Attack, Target};
use crate::floods::back_ends;
use crate::raw::{TEXT, connect_with, frame, hear, narrow, open, upgrade};
use crate::support::{Lines, Options, Server, Setup, Socket, chosen_io, now, process, until};

/// `limits.memory_limit` of the server under attack.
const LIMIT_KIB: u64 = 64 << 10;

/// The tolerated excess over `memory_limit`: data written between two memory readings, and memory released late.
const OVER_KIB: u64 = 32 << 10;

/// The tolerated growth of memory that remains after the attack.
const GIVEN_BACK_KIB: u64 = 12 << 10;

const ROUTES: &str = "[[route]]\npath = \"/centrifuge\"\nhandler = \"centrifuge\"\n\
    identity = \"query:user\"\n\
    [[namespace]]\nname = \"long\"\nhistory_size = 20_000\nhistory_ttl = \"1h\"\nsubscribe = \"client\"\n\
    presence = true\ndelta = \"fossil\"\ntags_filter = true\n";

const PUBLICATIONS: usize = 20_000;

/// Limits under which the response with the whole history is many times as large as its request.
const LIMITS: &str =
    "history_answer_max = 20_000\nwrite_timeout = \"10s\"\nheader_timeout = \"2s\"";

/// The number of attackers.
const ATTACKERS: usize = 4;
/// The number of clients per attacker.
const CLIENTS: usize = 75;

/// The tolerated total memory: for each client its session and a hundred kilobytes of pending data.
const MEMORY_MIB_MAX: u64 = 64;

fn say(socket: &mut TcpStream, command: &Value) {
    let frame = frame(TEXT, command.to_string().as_bytes());
    socket.write_all(&frame).expect("the server reads");
}

/// Connects a client and subscribes it to the channel `long:1`; `more` holds additional fields of
/// the subscribe command.
fn join(socket: &mut TcpStream, more: &Value) {
    say(socket, &json!({ "id": 1, "connect": {} }));
    let mut subscribe = json!({ "channel": "long:1" });
    for (name, value) in more.as_object().into_iter().flatten() {
        subscribe[name] = value.clone();
    }
    say(socket, &json!({ "id": 2, "subscribe": subscribe }));
}

/// Returns a subscribed client that stops reading.
fn deaf(target: &Target<'_>) -> TcpStream {
    let socket = connect_with(target.address, narrow);
    let mut socket = upgrade(socket, "/centrifuge?user=deaf", "");
    join(&mut socket, &json!({}));
    socket
}

/// Publishes until the channel's history is full.
fn fill(server: &Server) {
    let mut lines = Lines::connect(server.push);
    let data = json!({ "number": 1, "text": "x".repeat(380) });
    let line = json!({ "channel": "long:1", "data": data, "tags": { "kind": "a" } });
    let line = format!("{line}\n").repeat(100);
    (0..PUBLICATIONS / 100).for_each(|_| lines.raw(line.as_bytes()));
    lines.finish();
}

/// Returns the next message, which may consist of several frames.
fn message(socket: &mut TcpStream) -> Vec<u8> {
    let mut message = Vec::new();
    loop {
        let (first, payload) = hear(socket).expect("it is served");
        message.extend(payload);
        if first & 0x80 != 0 {
            return message;
        }
    }
}

/// Runs an attack on each driver, after it has filled the history of the channel `long:1`.
fn on_both(attempt: impl Fn(&Target<'_>) + Sync) {
    for io in back_ends() {
        let attack = Attack {
            options: Options {
                limits: LIMITS,
                routes: ROUTES,
                ..Options::default()
            },
            attackers: ATTACKERS,
            // The first round fills the history, so it runs before the measurement.
            is_first_costly: true,
            memory_mib_max: MEMORY_MIB_MAX,
            io,
            has_newcomers: true,
        };
        let filled = OnceLock::new();
        attack.run(|target, _| {
            if filled.set(()).is_ok() {
                return fill(target.server);
            }
            attempt(target);
        });
    }
}

/// Three hundred clients request the whole history once and read nothing. Meanwhile, a client that
/// reads receives all of it.
#[test]
fn unread_histories() {
    let history = json!({ "id": 3, "history": { "channel": "long:1", "limit": -1 } });
    on_both(|target| {
        let mut sockets: Vec<_> = (0..CLIENTS).map(|_| deaf(target)).collect();
        sockets.iter_mut().for_each(|socket| say(socket, &history));
        let mut reader = open(target.address, "/centrifuge?user=reader", "");
        join(&mut reader, &json!({}));
        say(&mut reader, &history);
        let reply = loop {
            let message = message(&mut reader);
            if message.starts_with(b"{\"id\":3") {
                break message;
            }
        };
        let reply: Value = serde_json::from_slice(&reply).expect("JSON");
        let publications = reply["history"]["publications"].as_array();
        assert_eq!(publications.map(Vec::len), Some(PUBLICATIONS));
        target.landed();
        target.outlast();
    });
}

/// Clients read nothing, and request the channel's presence a hundred times.
#[test]
fn unread_presences() {
    let presence = json!({ "id": 3, "presence": { "channel": "long:1" } });
    let presences = vec![presence.to_string(); 100].join("\n");
    let presences = frame(TEXT, presences.as_bytes());
    on_both(|target| {
        let mut sockets: Vec<_> = (0..CLIENTS).map(|_| deaf(target)).collect();
        for socket in &mut sockets {
            socket.write_all(&presences).expect("the server reads");
        }
        let mut byte = [0];
        sockets[0].read_exact(&mut byte).expect("it is answered");
        target.landed();
        target.outlast();
    });
}

/// Clients recover 300 publications, some with deltas or a filter, and read nothing.
#[test]
fn unread_recoveries() {
    let since = PUBLICATIONS - 300;
    let filter = json!({ "op": "or", "nodes": [
        { "key": "kind", "cmp": "eq", "val": "b" },
        { "key": "kind", "cmp": "sw", "val": "a" },
    ] });
    let ways = [
        json!({ "recover": true, "offset": since }),
        json!({ "recover": true, "offset": since, "delta": "fossil" }),
        json!({ "recover": true, "offset": since, "tf": filter }),
    ];
    on_both(|target| {
        let join = |place: usize| {
            let socket = connect_with(target.address, narrow);
            let mut socket = upgrade(socket, "/centrifuge?user=deaf", "");
            join(&mut socket, &ways[place % ways.len()]);
            socket
        };
        let mut sockets: Vec<_> = (0..CLIENTS).map(join).collect();
        let mut received = Vec::new();
        while !received.windows(10).any(|some| some == b"\"recovered") && received.len() < 4_000 {
            let mut some = [0; 100];
            let count = sockets[0].read(&mut some).expect("it is answered");
            received.extend_from_slice(&some[..count]);
        }
        assert!(
            received.windows(5).any(|some| some == b"xxxxx"),
            "it receives something"
        );
        target.landed();
        target.outlast();
    });
}

/// The outboxes of subscribers that do not read would exceed the limit several times. The limit holds, and another
/// client is served meanwhile. Once the subscribers have disconnected, the server accepts handshakes again.
#[test]
fn outboxes_up_to_the_memory_limit() {
    const SUBSCRIBERS: usize = 40;
    let setup = Setup {
        io: chosen_io(),
        workers: 1,
    };
    let server = Server::with(
        setup,
        &Options {
            limits: "memory_limit = \"64MiB\"\noutbox_bytes = \"8MiB\"",
            ..Options::default()
        },
    );
    let mut bystander = Socket::open(server.public, "/echo");
    let pid = server.pid();
    let before = process::rss_kib(pid);
    process::forget_peak(pid);
    let subscribe = |_| {
        let socket = connect_with(server.public, narrow);
        upgrade(socket, "/ws?user=deaf&channel=room:1", "")
    };
    let deaf: Vec<_> = (0..SUBSCRIBERS).map(subscribe).collect();
    let mut lines = Lines::connect(server.push);
    let line = json!({ "channel": "room:1", "data": "x".repeat(10_000) });
    let line = format!("{line}\n");
    let begun = now();
    let mut worst = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(3) {
        lines.raw(line.as_bytes());
        let asked = now();
        bystander.say("hello");
        assert_eq!(bystander.text(), "hello");
        worst = worst.max(asked.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
    let peak = process::peak_kib(pid);
    eprintln!("peak {peak} KiB, worst echo {worst:?}");
    until("the server to say that memory is short", || {
        server.log().contains("memory_limit is reached")
    });
    assert!(peak > LIMIT_KIB, "{peak} KiB: nothing was published");
    // The measured peak includes file pages, which `memory_limit` does not count, so the memory before the attack
    // (`before`) is added to the limit.
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
