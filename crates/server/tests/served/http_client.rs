//! Tests `veche.http` on the real server, with Veche itself, nginx and a silent server as targets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::support::metrics::Metrics;
use crate::support::nginx::Nginx;
use crate::support::{Options, Server, Setup, Socket, get, on_all, on_each, until};

const ROUTES: &str = "
[[route]]
path = \"/lua/*\"
handler = \"lua\"
script = \"app.lua\"
[[route]]
path = \"/ws/*\"
handler = \"lua\"
script = \"app.lua\"";

const APP: &str = r#"
local veche = require "veche"
local http = veche.http
local app = {}

function app.open(conn) conn:send("open") end

local tasks = {}
function app.message(conn, data)
  local word, rest = data:match("^(%w+) ?(.*)$")
  if word == "ask" then
    local ok, answer = pcall(http.get, rest, { timeout = 10 })
    conn:send(ok and "answer " .. answer.body or answer)
  elseif word == "begin" then tasks[conn.id] = veche.spawn(http.get, rest) conn:send("begun")
  elseif word == "stream" then tasks[conn.id] = veche.spawn(function()
      local answer = http.get(rest, { stream = true })
      conn:send("begun")
      answer:read() answer:read()
    end)
  elseif word == "cancel" then tasks[conn.id]:cancel() conn:send("cancelled")
  end
end

function app.request(req)
  local to = req.query.to
  if req.path == "/lua/echo" then
    return 200, { ["x-method"] = req.method, ["x-own"] = req.headers["x-own"] }, req.method == "HEAD" and "" or req.body
  elseif req.path == "/lua/calls" then
    local echo = to .. "/lua/echo"
    assert(http.post(echo, "b\0dy").body == "b\0dy")
    assert(http.post(echo, { json = { a = 1 } }):json().a == 1)
    assert(http.put(echo, { form = { a = "b c" } }).body == "a=b+c")
    for _, name in ipairs { "get", "head", "delete", "patch" } do
      local answer = http[name](echo, nil, nil)
      assert(answer.status == 200 and answer.headers["x-method"] == name:upper(), name)
    end
    assert(http.get(echo, { headers = { ["X-Own"] = "mine" } }).headers["x-own"] == "mine")
    local page = http.get(to .. "/")
    assert(page.body == "<p>hello</p>" and page.headers["content-type"]:find("text/html", 1, true))
    assert(http.get(to .. "/none").status == 404)
    assert(http.head(to .. "/").headers["content-length"] == "12")
    local all = {}
    for chunk in http.post(echo, ("x"):rep(300000), { stream = true }):chunks() do all[#all + 1] = chunk end
    assert(table.concat(all) == ("x"):rep(300000))
    assert(not pcall(http.get, to .. "/", { max_body = 11 }))
    return "all good"
  elseif req.path == "/lua/many" then
    local tasks, sum = {}, 0
    for i = 1, 200 do tasks[i] = veche.spawn(function()
      return tonumber(http.post(to .. "/lua/echo", tostring(i), { max_per_host = 20 }).body)
    end) end
    for _, task in ipairs(tasks) do sum = sum + task:join() end
    return tostring(sum)
  elseif req.path == "/lua/fetch" then
    local answer = http.get(to)
    return answer.status, { ["x-url"] = answer.url }, answer.body
  end
end

return app
"#;

fn serve(setup: Setup) -> Server {
    Server::serving(setup, ROUTES, &[("app.lua", APP)])
}

/// A silent server that counts connections.
struct Silent {
    address: SocketAddr,
    open: Arc<AtomicUsize>,
}

impl Silent {
    /// Starts a server that sends `greeting` when it first receives data on a connection, and then
    /// nothing more.
    fn new(greeting: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let open = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&open);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream: TcpStream = stream.expect("a connection");
                let count = Arc::clone(&count);
                count.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    let mut is_greeted = greeting.is_empty();
                    while matches!(stream.read(&mut bytes), Ok(1..)) {
                        if !std::mem::replace(&mut is_greeted, true) {
                            let _ = stream.write_all(greeting.as_bytes());
                        }
                    }
                    count.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { address, open }
    }

    fn until(&self, count: usize) {
        until("connections to come or go", || {
            self.open.load(SeqCst) == count
        });
    }
}

#[test]
fn our_own_server_is_asked() {
    on_all(|setup| {
        let server = serve(setup);
        let to = format!("http://{}", server.public);
        let good = get(server.public, &format!("/lua/calls?to={to}"));
        assert_eq!(good.text(), "all good", "{}", server.log());
        let many = get(server.public, &format!("/lua/many?to={to}"));
        assert_eq!(many.text(), "20100", "{}", server.log());
        let metrics = Metrics::scrape(server.internal);
        let of = |name: &str| metrics.sum(name, &["client=\"http\""]);
        assert!(of("veche_outbound_calls_total") > 200.0);
        assert_eq!(of("veche_outbound_waiting"), 0.0);
        assert!(of("veche_outbound_wait_seconds_count") >= 100.0);
        let connections = of("veche_outbound_connections");
        assert!((1.0..=30.0).contains(&connections), "{connections}");
    });
}

#[test]
fn a_cancelled_coroutine_closes_its_connection() {
    on_each(|setup| {
        let server = serve(setup);
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegin";
        for (word, greeting) in [("begin", ""), ("stream", head)] {
            let silent = Silent::new(greeting);
            let mut socket = Socket::open(server.public, "/ws/x");
            assert_eq!(socket.text(), "open");
            socket.say(&format!("{word} http://{}/", silent.address));
            assert_eq!(socket.text(), "begun");
            silent.until(1);
            socket.say("cancel");
            assert_eq!(socket.text(), "cancelled");
            silent.until(0);
        }
    });
}

#[test]
fn pending_requests_finish_in_the_code_they_started_in() {
    on_each(|setup| {
        let server = serve(setup);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let mut socket = Socket::open(server.public, "/ws/x");
        assert_eq!(socket.text(), "open");
        socket.say(&format!("ask http://{address}/"));
        let (mut peer, _) = listener.accept().expect("a connection");
        let mut request = [0; 4096];
        assert!(peer.read(&mut request).expect("a request") > 0);
        let newer = APP.replace("\"answer \"", "\"new answer \"");
        server.configure(&Options {
            routes: ROUTES,
            files: &[("app.lua", newer.as_str())],
            ..Options::default()
        });
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate")
            .expect("written");
        assert_eq!(socket.text(), "answer late");
        socket.say(&format!("ask http://{address}/"));
        assert!(peer.read(&mut request).expect("another request") > 0);
        peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nsoon")
            .expect("written");
        assert_eq!(socket.text(), "new answer soon");
    });
}

/// Starts an nginx that serves compressed files and closes each connection after three requests.
fn nginx() -> Nginx {
    Nginx::start(
        |address, folder| {
            format!(
                "gzip on; gzip_min_length 1; gzip_types text/plain; keepalive_requests 3;
                server {{
                  listen {address}; root {}/html; default_type text/plain;
                  location /moved {{ return 301 /long.txt; }}
                }}",
                folder.display()
            )
        },
        &[("html/long.txt", &"veche ".repeat(50_000))],
    )
}

#[test]
fn nginx_is_asked() {
    let nginx = nginx();
    on_each(|setup| {
        let server = serve(setup);
        let to = format!("http://{}", nginx.address);
        // nginx closes each connection after three requests.
        for _ in 0..20 {
            let answer = get(server.public, &format!("/lua/fetch?to={to}/moved"));
            assert_eq!(answer.status, 200, "{}", server.log());
            assert_eq!(answer.header("x-url"), Some(&*format!("{to}/long.txt")));
            assert_eq!(answer.body.len(), 300_000);
        }
        let answer = get(server.public, &format!("/lua/fetch?to={to}/none"));
        assert_eq!(answer.status, 404);
    });
}
