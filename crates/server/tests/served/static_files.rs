//! Static files on the real server: precompressed variants, and headers of routes.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::support::{Http, Options, Response, Server, Setup, Socket, on_all};

const ROUTES: &str = r#"
[[route]]
path = "/assets"
handler = "static"
root = "assets"
precompressed = ["br", "gzip"]
headers = { Cache-Control = "public, max-age=31536000, immutable", X-Frame-Options = "DENY" }
[[route]]
path = "/zipped"
handler = "static"
root = "assets"
precompressed = ["gzip"]
[[route]]
path = "/assets/private"
handler = "static"
root = "assets"
deny = ["0.0.0.0/0", "::/0"]
headers = { X-Frame-Options = "DENY" }
[[route]]
path = "/app/*"
handler = "lua"
script = "app.lua"
files = "assets"
request_timeout = "500ms"
headers = { Cache-Control = "max-age=60", X-Frame-Options = "DENY", Referrer-Policy = "no-referrer" }
"#;

const APP: &str = r#"
local veche = require "veche"
local app = {}
function app.request(req)
  local what = req.path:match("^/app/(.*)$")
  if what == "own" then return 200, { ["cache-control"] = "no-store", ["X-Frame-Options"] = "SAMEORIGIN" }, "own" end
  if what == "parts" then return function(write) write("a") write("b") end end
  if what == "file" then return veche.file("app.js") end
  if what == "gone" then return 410, "gone" end
  if what == "away" then return 302, { Location = "/" }, "" end
  if what == "fail" then error("as asked") end
  if what == "slow" then veche.sleep(5) end
  return "plain"
end
function app.handshake(req)
  if req.path == "/app/refused" then return 403, "no" end
end
return app
"#;

fn large(first: char) -> String {
    first.to_string() + &"large ".repeat(20_000)
}

fn serve(setup: Setup) -> Server {
    let (plain, packed) = (large('p'), large('b'));
    let files = [
        ("app.lua", APP),
        ("assets/app.js", "plain js"),
        ("assets/app.js.br", "<br>"),
        ("assets/app.js.gz", "<gzip>"),
        ("assets/stale.js", "plain stale"),
        ("assets/stale.js.br", "<stale br>"),
        ("assets/stale.js.gz", "<fresh gzip>"),
        ("assets/large.js", &*plain),
        ("assets/large.js.br", &*packed),
        ("assets/alone.txt", "alone"),
        ("assets/private/x.txt", "secret"),
    ];
    Server::serving(setup, ROUTES, &files)
}

fn ask(http: &mut Http, method: &str, target: &str, headers: &str) -> Response {
    let mut lines = String::new();
    for line in headers.lines() {
        lines += &format!("{line}\r\n");
    }
    if method == "HEAD" {
        let request = format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
        http.raw(request.as_bytes()).expect("sent");
        return http.head().expect("an answer");
    }
    http.request(method, target, &lines, b"")
        .expect("an answer")
}

/// Sets a file's modification time back by `by`.
fn age(path: &Path, by: Duration) {
    let file = File::options().write(true).open(path).expect("it is there");
    let modified = file.metadata().and_then(|about| about.modified());
    file.set_modified(modified.expect("known") - by)
        .expect("set");
}

#[test]
fn the_variant_that_the_client_prefers_is_sent() {
    on_all(|setup| {
        let server = serve(setup);
        age(
            &server.folder.join("assets/stale.js.br"),
            Duration::from_secs(60),
        );
        let mut http = Http::connect(server.public);
        for (target, accepted, body, encoding) in [
            ("/assets/app.js", "gzip, deflate, br, zstd", "<br>", "br"),
            ("/assets/app.js", "gzip;q=1.0, *;q=0.5", "<gzip>", "gzip"),
            ("/assets/app.js", "deflate", "plain js", ""),
            ("/assets/app.js", "identity;q=1, *;q=0", "plain js", ""),
            ("/zipped/app.js", "gzip, br", "<gzip>", "gzip"),
            ("/zipped/app.js", "br", "plain js", ""),
            ("/assets/stale.js", "br, gzip", "<fresh gzip>", "gzip"),
            ("/assets/stale.js", "br", "plain stale", ""),
            ("/assets/alone.txt", "br, gzip", "alone", ""),
            ("/assets/app.js.gz", "br, gzip", "<gzip>", ""),
        ] {
            let what = format!("{target} {accepted}");
            let accept = format!("Accept-Encoding: {accepted}");
            let answer = ask(&mut http, "GET", target, &accept);
            assert_eq!((answer.status, answer.text()), (200, body), "{what}");
            let found = answer.header("content-encoding").unwrap_or_default();
            assert_eq!(found, encoding, "{what}");
            assert_eq!(answer.header("vary"), Some("Accept-Encoding"), "{what}");
            let tag = answer.header("etag").expect("a tag").to_owned();

            let head = ask(&mut http, "HEAD", target, &accept);
            let length = body.len().to_string();
            assert_eq!(head.header("content-length"), Some(&*length), "{what}");
            assert_eq!(head.header("etag"), Some(&*tag), "{what}");

            let asked = format!("{accept}\nIf-None-Match: {tag}");
            let again = ask(&mut http, "GET", target, &asked);
            assert_eq!((again.status, again.text()), (304, ""), "{what}");
            assert_eq!(again.header("vary"), Some("Accept-Encoding"), "{what}");
            let other = format!("Accept-Encoding: identity\nIf-None-Match: {tag}");
            let status = if encoding.is_empty() { 304 } else { 200 };
            assert_eq!(
                ask(&mut http, "GET", target, &other).status,
                status,
                "{what}"
            );
        }
        // A client without preferences gets the plain file. A client that accepts none of the available variants gets
        // 406.
        let answer = ask(&mut http, "GET", "/assets/app.js", "");
        assert_eq!(answer.text(), "plain js");
        let answer = ask(
            &mut http,
            "GET",
            "/zipped/app.js",
            "Accept-Encoding: br, *;q=0",
        );
        assert_eq!(answer.status, 406);
        assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
        // Routes without precompressed variants send no Vary header, and neither do files of applications.
        let answer = ask(&mut http, "GET", "/index.html", "Accept-Encoding: br, gzip");
        assert_eq!((answer.status, answer.header("vary")), (200, None));
        let answer = ask(&mut http, "GET", "/app/file", "Accept-Encoding: br, gzip");
        assert_eq!((answer.text(), answer.header("vary")), ("plain js", None));
    });
}

#[test]
fn a_large_variant_is_sent_whole_and_in_parts() {
    on_all(|setup| {
        let server = serve(setup);
        let mut http = Http::connect(server.public);
        let answer = ask(&mut http, "GET", "/assets/large.js", "Accept-Encoding: br");
        assert_eq!(answer.text(), large('b'));
        let tag = answer.header("etag").expect("a tag").to_owned();
        let headers = format!("Accept-Encoding: br\nRange: bytes=0-6\nIf-Range: {tag}");
        let part = ask(&mut http, "GET", "/assets/large.js", &headers);
        assert_eq!((part.status, part.text()), (206, "blarge "));
        assert_eq!(part.header("content-range"), Some("bytes 0-6/120001"));
        assert_eq!(part.header("content-encoding"), Some("br"));
        let headers = format!("Accept-Encoding: gzip\nRange: bytes=0-6\nIf-Range: {tag}");
        let whole = ask(&mut http, "GET", "/assets/large.js", &headers);
        assert_eq!((whole.status, whole.text()), (200, &*large('p')));
    });
}

#[test]
fn routes_add_headers_to_their_answers() {
    const FOREVER: &str = "public, max-age=31536000, immutable";
    on_all(|setup| {
        let server = serve(setup);
        let mut http = Http::connect(server.public);
        for (method, target, headers, status, cache) in [
            ("GET", "/assets/app.js", "", 200, FOREVER),
            ("HEAD", "/assets/app.js", "", 200, FOREVER),
            ("GET", "/assets/app.js", "Range: bytes=0-1", 206, FOREVER),
            ("GET", "/assets/app.js", "If-None-Match: *", 304, FOREVER),
            // Error responses are not cached for a year.
            ("GET", "/assets/none.js", "", 404, ""),
            ("GET", "/assets/app.js", "Range: bytes=99-", 416, ""),
            ("GET", "/assets/app.js", "If-Match: \"x\"", 412, "no-cache"),
            ("GET", "/assets/private/x.txt", "", 403, ""),
            ("GET", "/assets", "", 301, ""),
            ("GET", "/app/plain", "", 200, "max-age=60"),
            ("GET", "/app/parts", "", 200, "max-age=60"),
            ("GET", "/app/file", "", 200, "max-age=60"),
            ("GET", "/app/file", "If-None-Match: *", 304, "max-age=60"),
            ("GET", "/app/gone", "", 410, ""),
            ("GET", "/app/away", "", 302, ""),
            ("GET", "/app/fail", "", 500, ""),
            ("GET", "/app/slow", "", 504, ""),
        ] {
            let what = format!("{method} {target} {headers}");
            let answer = ask(&mut http, method, target, headers);
            assert_eq!(answer.status, status, "{what}: {answer:?}");
            assert_eq!(answer.header_all("x-frame-options"), ["DENY"], "{what}");
            let found = answer.header_all("cache-control");
            let expected = if cache.is_empty() {
                vec![]
            } else {
                vec![cache]
            };
            assert_eq!(found, expected, "{what}");
            if status == 504 {
                http = Http::connect(server.public);
            }
        }
        // Headers of the script take precedence over those of the route, whatever the case of their names.
        let answer = ask(&mut http, "GET", "/app/own", "");
        assert_eq!(answer.header_all("cache-control"), ["no-store"]);
        assert_eq!(answer.header_all("x-frame-options"), ["SAMEORIGIN"]);
        assert_eq!(answer.header_all("referrer-policy"), ["no-referrer"]);
        // The next request on the same connection belongs to another route.
        let answer = ask(&mut http, "GET", "/index.html", "");
        assert_eq!(answer.header_all("cache-control"), ["no-cache"]);
        assert_eq!(answer.header_all("x-frame-options"), [""; 0]);
        let answer = ask(&mut http, "GET", "/nothing/here", "");
        assert_eq!(
            (answer.status, answer.header("referrer-policy")),
            (404, None)
        );
        // Responses to handshakes have the headers of their route too, whether the handshake is
        // refused or succeeds.
        let refused = format!("{UPGRADE}Host: localhost\r\n");
        let answer = raw(
            &server,
            &format!("GET /app/refused HTTP/1.1\r\n{refused}\r\n"),
        );
        assert_eq!(
            (answer.status, answer.header("x-frame-options")),
            (403, Some("DENY"))
        );
        Socket::open(server.public, "/app/open");
    });
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn raw(server: &Server, request: &str) -> Response {
    let mut http = Http::connect(server.public);
    http.raw(request.as_bytes()).expect("sent");
    http.response().expect("an answer")
}

#[test]
fn a_reload_changes_both() {
    on_all(|setup| {
        let files = [("assets/app.js", "plain js"), ("assets/app.js.br", "<br>")];
        let route = "[[route]]\npath = \"/assets\"\nhandler = \"static\"\nroot = \"assets\"\n";
        let server = Server::serving(setup, route, &files);
        let mut http = Http::connect(server.public);
        let accept = "Accept-Encoding: br";
        let answer = ask(&mut http, "GET", "/assets/app.js", accept);
        assert_eq!(answer.text(), "plain js");
        let more = "precompressed = [\"br\"]\nheaders = { X-A = \"a\" }\n";
        server.configure(&Options {
            routes: &format!("{route}{more}"),
            ..Options::default()
        });
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        let mut http = Http::connect(server.public);
        let answer = ask(&mut http, "GET", "/assets/app.js", accept);
        assert_eq!(answer.text(), "<br>");
        assert_eq!(answer.header("x-a"), Some("a"));
    });
}
