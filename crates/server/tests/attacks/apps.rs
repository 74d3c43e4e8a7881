//! What applications are given to read: JSON and forms made to be slow.

use std::io::Write;

use crate::attack::Attack;
use crate::raw::{connect, status};
use crate::support::Options;
use crate::support::server::KEY_HEADER;

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

/// Bodies for an application, and for the API of the back end.
fn posts(bodies: &[String]) {
    let attack = Attack {
        options: Options {
            routes: "[[route]]\npath = \"/app\"\nhandler = \"lua\"\nscript = \"app.lua\"",
            files: &[("app.lua", APP)],
            ..Options::default()
        },
        // Four bodies of a megabyte, and the tables that one of them becomes.
        memory_mib_max: 96,
        ..Attack::default()
    };
    attack.run(|target, rng| {
        let body = &bodies[rng.usize(..bodies.len())];
        let mut socket = connect(target.address);
        let _ = socket.write_all(&post("/app", body));
        if let Some(status) = status(&mut socket) {
            // 500: it took more than its budget.
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
        // Hashes that look at the ends and the middle of a name only find all of these alike.
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
