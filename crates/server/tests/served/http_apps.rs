//! Tests HTTP applications on the real server: streamed responses, server-sent events, files,
//! time limits.

use std::time::Duration;

use crate::support::{Http, Options, Server, Setup, get, now, on_all, until};

const ROUTES: &str = "
[[route]]
path = \"/web/*\"
handler = \"lua\"
script = \"web/app.lua\"
files = \"web/public\"
request_timeout = \"1s\"
[[route]]
path = \"/patient/*\"
handler = \"lua\"
app = \"patient\"
[[app]]
name = \"patient\"
script = \"web/app.lua\"
request_timeout = \"off\"";

const APP: &str = r#"
local veche = require "veche"
local app, router = {}, veche.router()
app.request = router

router:get("/web/parts", function(req)
  return 200, { ["Content-Type"] = "text/plain" }, function(write)
    for i = 1, tonumber(req.query.count) do
      write("part " .. i .. "\n")
      if req.query.wait then veche.sleep(tonumber(req.query.wait)) end
    end
  end
end)

-- Writes pieces as fast as the client reads them, and counts the written pieces.
router:get("/web/much", function(req)
  local counter = veche.counter(req.query.name)
  return function(write)
    local piece = ("x"):rep(10000)
    for i = 1, tonumber(req.query.count) do
      write(piece)
      counter:add()
    end
    veche.counter(req.query.name .. " done"):add()
  end
end)

router:get("/web/count/:name", function(req) return tostring(veche.counter(req.params.name):get()) end)

router:get("/web/fail", function()
  return function(write) write("some") veche.sleep(0.01) error("as asked") end
end)

router:get("/web/events", function(req)
  return req:events(function(stream)
    stream:send { event = "hello", id = "1", data = { last = stream.last_id or "none" } }
    if req.query.channel then stream:subscribe(req.query.channel) end
    stream:send "subscribed"
    local ok, why = pcall(stream.wait, stream)
    veche.counter("events over"):add()
    error(why, 0)
  end)
end)

router:post("/web/publish/:channel", function(req)
  veche.publish(req.params.channel, req.body)
  return 204
end)

router:any("/web/slow", function(req)
  local ok, why = pcall(veche.sleep, 5)
  veche.counter("late"):add()
  if not ok then error(why, 0) end
  return "slow"
end)

router:get("/patient/slow", function()
  veche.sleep(1.5)
  return "at last"
end)

local function file(req) return veche.file(req.query.path, { download = req.query.download }) end
router:get("/web/file", file)
router:get("/patient/file", file)
router:get("/web/tree/*path", function(req) return veche.file(req.params.path) end)

return app
"#;

fn serve(setup: Setup) -> Server {
    let large = "0123456789".repeat(50_000);
    let files = [
        ("web/app.lua", APP),
        ("web/public/note.txt", "a note\n"),
        ("web/public/deep/note.txt", "a deep one\n"),
        ("web/public/large.txt", &large),
        ("web/key.txt", "secret"),
        ("secret.txt", "secret"),
    ];
    Server::serving(setup, ROUTES, &files)
}

fn count(server: &Server, name: &str) -> u64 {
    let path = format!("/web/count/{}", name.replace(' ', "%20"));
    get(server.public, &path).text().parse().expect("a number")
}

#[test]
fn responses_come_in_parts() {
    on_all(|setup| {
        let server = serve(setup);
        let mut http = Http::connect(server.public);
        let whole = http
            .request("GET", "/web/parts?count=2000", "", b"")
            .expect("an answer");
        assert_eq!(whole.header("transfer-encoding"), Some("chunked"));
        let expected: String = (1..=2000).map(|i| format!("part {i}\n")).collect();
        assert_eq!(whole.text(), expected);
        // Each part is sent when the handler has written it.
        http.raw(b"GET /web/parts?count=3&wait=0.1 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        http.head().expect("a head");
        let began = now();
        let first = http.chunk().expect("a chunk").expect("not the end");
        assert_eq!(first, b"part 1\n");
        while http.chunk().expect("a chunk").is_some() {}
        assert!(began.elapsed() > Duration::from_millis(150));
        // The responses to HEAD have neither bodies nor chunks.
        http.raw(b"HEAD /web/parts?count=3 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        assert_eq!(http.head().expect("a head").status, 200);
        assert_eq!(
            http.request("GET", "/web/parts?count=0", "", b"")
                .expect("an answer")
                .body,
            b""
        );
        let mut old = Http::connect(server.public);
        old.raw(b"GET /web/parts?count=3 HTTP/1.0\r\n\r\n")
            .expect("sent");
        assert_eq!(
            old.head().expect("a head").header("transfer-encoding"),
            None
        );
        assert_eq!(old.rest().expect("its end"), b"part 1\npart 2\npart 3\n");
        let mut cut = Http::connect(server.public);
        cut.raw(b"GET /web/fail HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        cut.head().expect("a head");
        assert_eq!(cut.rest().expect("its end"), b"4\r\nsome\r\n");
        until("its log", || server.log().contains("as asked"));
    });
}

#[test]
fn a_client_that_does_not_read_holds_its_writer_back() {
    on_all(|setup| {
        let server = serve(setup);
        let mut http = Http::connect(server.public);
        http.raw(b"GET /web/much?name=slow&count=3000 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        http.head().expect("a head");
        let mut seen = 0;
        until("it to wait", || {
            let before = std::mem::replace(&mut seen, count(&server, "slow"));
            std::thread::sleep(Duration::from_millis(30));
            seen > 0 && seen == before
        });
        // The kernel's buffers hold some megabytes, so the handler has to stop before the end.
        assert!(seen < 2500, "{seen} of 30 MB in pieces of 10 KB");
        let mut bytes = 0;
        while let Some(chunk) = http.chunk().expect("a chunk") {
            bytes += chunk.len();
        }
        assert_eq!(bytes, 30_000_000);
        assert_eq!(count(&server, "slow done"), 1);
        // A disconnect of the client ends the handler.
        http.raw(b"GET /web/much?name=gone&count=3000 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        http.head().expect("a head");
        drop(http);
        let mut seen = 0;
        until("it to end", || {
            let before = std::mem::replace(&mut seen, count(&server, "gone"));
            std::thread::sleep(Duration::from_millis(30));
            seen > 0 && seen == before
        });
        assert_eq!(count(&server, "gone done"), 0);
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

/// Returns the fields of the next event.
fn event(http: &mut Http) -> String {
    let chunk = http.chunk().expect("a chunk").expect("not the end");
    String::from_utf8(chunk).expect("text")
}

#[test]
fn events_follow_channels_on_all_workers() {
    on_all(|setup| {
        let server = serve(setup);
        let mut listeners: Vec<Http> = (0..6).map(|_| Http::connect(server.public)).collect();
        for http in &mut listeners {
            let request =
                "GET /web/events?channel=news HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 41\r\n\r\n";
            http.raw(request.as_bytes()).expect("sent");
            let head = http.head().expect("a head");
            assert_eq!(head.header("content-type"), Some("text/event-stream"));
            assert_eq!(head.header("cache-control"), Some("no-store"));
            let hello = event(http);
            for line in ["event: hello\n", "id: 1\n", "data: {\"last\":\"41\"}\n"] {
                assert!(hello.contains(line), "{hello}");
            }
            assert_eq!(event(http), "data: subscribed\n\n");
        }
        let mut back_end = Http::connect(server.public);
        for round in 0..20 {
            let text = format!("{round}\nsecond line");
            let answer = back_end.request("POST", "/web/publish/news", "", text.as_bytes());
            assert_eq!(answer.expect("an answer").status, 204);
        }
        for http in &mut listeners {
            for round in 0..20 {
                assert_eq!(event(http), format!("data: {round}\ndata: second line\n\n"));
            }
        }
        // The server notices a disconnect at the next send, if not before.
        drop(listeners);
        until("their handlers to end", || {
            let _ = back_end.request("POST", "/web/publish/news", "", b"anybody?");
            count(&server, "events over") == 6
        });
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

#[test]
fn handlers_have_a_time_limit() {
    on_all(|setup| {
        let server = serve(setup);
        let began = now();
        let late = get(server.public, "/web/slow");
        assert_eq!(
            (late.status, late.header("connection")),
            (504, Some("close"))
        );
        // Timers count whole milliseconds, so they may fire up to a millisecond early.
        assert!(began.elapsed() >= Duration::from_millis(999));
        until("its handler to be told", || count(&server, "late") == 1);
        until("its log", || {
            let words = "the request took longer than request_timeout";
            server.log().contains(words)
        });
        // The time limit applies between two writes, not to the whole response.
        let began = now();
        let slow = get(server.public, "/web/parts?count=4&wait=0.4");
        assert_eq!(slow.text().lines().count(), 4);
        assert!(began.elapsed() > Duration::from_millis(1500));
        let mut cut = Http::connect(server.public);
        cut.raw(b"GET /web/parts?count=2&wait=5 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        cut.head().expect("a head");
        assert_eq!(cut.rest().expect("its end"), b"7\r\npart 1\n\r\n");
        assert_eq!(get(server.public, "/patient/slow").text(), "at last");
    });
}

#[test]
fn files_lie_below_the_folder_that_the_configuration_names() {
    on_all(|setup| {
        let server = serve(setup);
        for (link, to) in [
            ("link.txt", "../key.txt"),
            ("inside.txt", "note.txt"),
            ("out", ".."),
        ] {
            let link = server.folder.join("web/public").join(link);
            std::os::unix::fs::symlink(to, link).expect("a link");
        }
        let mut http = Http::connect(server.public);
        let mut ask = |path: &str, headers: &str| {
            http.request("GET", &format!("/web/file?path={path}"), headers, b"")
                .expect("an answer")
        };
        let note = ask("note.txt&download=n.txt", "");
        assert_eq!((note.status, note.text()), (200, "a note\n"));
        let disposition = "attachment; filename=\"n.txt\"; filename*=UTF-8''n%2Etxt";
        assert_eq!(note.header("content-disposition"), Some(disposition));
        assert_eq!(
            note.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        let tag = note.header("etag").expect("a tag");
        assert_eq!(
            ask("note.txt", &format!("If-None-Match: {tag}\r\n")).status,
            304
        );
        let part = ask("large.txt", "Range: bytes=400000-400011\r\n");
        assert_eq!((part.status, part.text()), (206, "012345678901"));
        assert_eq!(ask("large.txt", "").body.len(), 500_000);
        assert_eq!(ask("nothing", "").status, 404);
        assert_eq!(ask("inside.txt", "").text(), "a note\n");
        // Files beside the script, the script itself, and paths that lead out of the folder are not served.
        for path in [
            "app.lua",
            "key.txt",
            "web/app.lua",
            "veche.toml",
            "link.txt",
            "out/key.txt",
            "out/app.lua",
        ] {
            assert_eq!(ask(path, "").status, 404, "{path}");
        }
        assert!(!server.log().contains("ERROR"), "{}", server.log());
        for path in [
            "../key.txt",
            "deep/../../key.txt",
            "/etc/passwd",
            ".hidden",
            "%2e%2e/key.txt",
        ] {
            assert_eq!(ask(path, "").status, 500, "{path}");
        }
        let tree = |path: &str| get(server.public, &format!("/web/tree/{path}"));
        assert_eq!(tree("deep/note.txt").text(), "a deep one\n");
        assert_eq!(tree("deep/%2e%2e/note.txt").text(), "a note\n");
        for path in [
            "..%2fkey.txt",
            "%2e%2e%2fkey.txt",
            "out/key.txt",
            "deep%2fnote.txt",
            "..",
        ] {
            assert!(matches!(tree(path).status, 404 | 500), "{path}");
        }
    });
}

#[test]
fn without_a_folder_there_are_no_files() {
    on_all(|setup| {
        let server = serve(setup);
        let answer = get(server.public, "/patient/file?path=note.txt");
        assert_eq!((answer.status, answer.text()), (500, "internal error\n"));
        until("its log", || {
            server
                .log()
                .contains("veche.file: this app has no folder of files")
                && server.log().contains("files = \"FOLDER\"")
        });
        // A reload can remove the folder of files and configure another one.
        for (files, status) in [("", 500), ("files = \"web/public/deep\"\n", 200)] {
            let routes = ROUTES.replace("files = \"web/public\"\n", files);
            server.configure(&Options {
                routes: &routes,
                ..Options::default()
            });
            assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
            until("the new folder", || {
                get(server.public, "/web/file?path=note.txt").status == status
            });
        }
        assert_eq!(
            get(server.public, "/web/file?path=note.txt").text(),
            "a deep one\n"
        );
    });
}

#[test]
fn a_shutdown_does_not_wait_for_event_streams() {
    let setup = crate::support::USUAL;
    let mut server = serve(setup);
    let mut http = Http::connect(server.public);
    http.raw(b"GET /web/events HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    http.head().expect("a head");
    assert!(event(&mut http).contains("hello"));
    let began = now();
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.exit_code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5));
}
