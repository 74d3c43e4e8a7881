//! Attacks on applications: JSON and forms that are slow to parse, and scripts that allocate more memory than the
//! server has.

use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::attack::Attack;
use crate::raw::{connect, status};
use crate::support::server::KEY_HEADER;
use crate::support::{Options, Server, Setup, Socket, chosen_io, now, process, until};

const APP: &str = "local app = {}\n\
    function app.request(req)\n\
      local body, count = req.json, 0\n\
      if type(body) ~= 'table' then return 400, 'no table' end\n\
      for _ in pairs(body) do count = count + 1 end\n\
      return tostring(count)\n\
    end\n\
    return app\n";

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: t\r\n{KEY_HEADER}Content-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Sends bodies to an application, and to the server API.
fn posts(bodies: &[String]) {
    let attack = Attack {
        options: Options {
            routes: "[[route]]\npath = \"/app\"\nhandler = \"lua\"\nscript = \"app.lua\"",
            files: &[("app.lua", APP)],
            ..Options::default()
        },
        // Enough for four bodies of a megabyte each, and for the tables created from one of them.
        memory_mib_max: 96,
        ..Attack::default()
    };
    attack.run(|target, rng| {
        let body = &bodies[rng.usize(..bodies.len())];
        let mut socket = connect(target.address);
        let _ = socket.write_all(&post("/app", body));
        if let Some(status) = status(&mut socket) {
            // 500: the handler exceeded its budget.
            assert!([200, 400, 500].contains(&status), "{status}");
            target.landed();
        }
        let mut socket = connect(target.server.internal);
        let _ = socket.write_all(&post("/api/push", body));
        if let Some(status) = status(&mut socket) {
            assert_eq!(status, 200, "an error has its own code in the body");
        }
    });
}

#[test]
fn names_that_collide() {
    let names = |name: &dyn Fn(usize) -> String| {
        let pairs: Vec<String> = (0..5_000).map(|n| format!("\"{}\":1", name(n))).collect();
        format!("{{{}}}", pairs.join(","))
    };
    posts(&[
        names(&|n| format!("k{n}")),
        // These names collide in a hash function that reads only the ends and the middle of a name.
        names(&|n| format!("aaaaaaaa{n:08}aaaaaaaaaaaaaaaaaaaaaaaa")),
        names(&|n| format!("aaaaaaaaaaaaaaaaaaaaaaaa{n:08}aaaaaaaa")),
    ]);
}

#[test]
fn json_a_hundred_thousand_deep() {
    posts(&[
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
        format!(
            "{{\"user\":\"u\",\"data\":{}{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        ),
    ]);
}

#[test]
fn numbers_and_escapes_that_are_long_to_read() {
    posts(&[
        format!("[{}]", "9".repeat(500_000)),
        format!("[0.{}]", "1".repeat(500_000)),
        format!("[1e{}]", "9".repeat(500_000)),
        format!("[\"{}\"]", "\\u0041".repeat(100_000)),
        format!("{{\"{}\":1}}", "k".repeat(500_000)),
    ]);
}

/// A script that retains received data in a task of a long-lived connection.
const GROWING: &str = "local veche = require 'veche'\n\
    local app, kept = {}, {}\n\
    local function grow()\n\
      kept[#kept + 1] = ('x'):rep(2^20) .. #kept\n\
    end\n\
    function app.message(conn, text)\n\
      if text == 'grow' then veche.spawn(grow) end\n\
      if text == 'drop' then kept = {} end\n\
      conn:send(tostring(#kept))\n\
    end\n\
    return app\n";

/// The server's `memory_limit`. The script tries to allocate twice as much.
const LIMIT_MIB: u64 = 96;
/// The tolerated excess over [`LIMIT_MIB`]: the growth of one VM in one run.
const OVER_MIB: u64 = 24;

#[test]
fn a_script_that_grows_to_twice_the_memory_limit() {
    let setup = Setup {
        io: chosen_io(),
        workers: 1,
    };
    let server = Server::with(
        setup,
        &Options {
            limits: &format!("memory_limit = \"{LIMIT_MIB}MiB\""),
            routes: "[[route]]\npath = \"/app\"\nhandler = \"lua\"\nscript = \"app.lua\"\nmemory = \"1GiB\"",
            files: &[("app.lua", GROWING)],
            ..Options::default()
        },
    );
    let pid = server.pid();
    let mut bystander = Socket::open(server.public, "/echo");
    let mut app = Socket::open(server.public, "/app");
    let mut other = Socket::open(server.public, "/app");
    process::forget_peak(pid);
    let mut kept = 0;
    for _ in 0..2 * LIMIT_MIB {
        app.say("grow");
        kept = app.text().parse().expect("a count");
        let asked = now();
        bystander.say("hello");
        assert_eq!(bystander.text(), "hello");
        assert!(asked.elapsed() < Duration::from_secs(5));
        // Messages of another connection to the same application are served too.
        other.say("count");
        other.text();
    }
    // `memory_limit` does not count the pages of the program's file.
    let peak = (process::peak_kib(pid) - process::file_kib(pid)) >> 10;
    eprintln!("kept {kept} MiB, peak {peak} MiB");
    assert!(kept >= LIMIT_MIB / 4, "{kept} MiB: it hardly grew");
    assert!(peak <= LIMIT_MIB + OVER_MIB, "{peak} MiB");
    let log = server.log();
    assert!(log.contains("memory_limit is reached"), "{log}");
    assert!(log.contains("not enough memory"), "{log}");

    // Memory that the application releases is available to other applications, and to itself.
    app.say("drop");
    assert_eq!(app.text(), "0");
    thread::sleep(Duration::from_secs(2));
    until("handshakes to be taken again", || {
        Socket::try_open(server.public, "/echo").is_ok()
    });
    until("the script to grow again", || {
        app.say("grow");
        app.text().parse::<u64>().expect("a count") >= 8
    });
    assert_eq!(server.pid(), pid, "the same process all along");
}
