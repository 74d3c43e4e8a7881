//! The server behind a proxy: the guide's configurations of nginx and HAProxy forward WebSockets and client addresses.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::free_address;
use crate::support::nginx::Nginx;
use crate::support::{Http, Options, Server, Setup, Socket, connect_from, on_all, until};

pub(crate) const ROUTES: &str = "
[[route]]
path = \"/whoami\"
handler = \"lua\"
script = \"app.lua\"
[[route]]
path = \"/app\"
handler = \"lua\"
script = \"app.lua\"
";

pub(crate) const APP: &str = r#"
local app = {}
function app.request(req) return req.remote .. "\n" end
function app.open(conn) conn:send(conn.remote) end
return app
"#;

/// Returns the guide's configuration block in `language` that contains this port, with its
/// addresses replaced by the test's.
fn block(language: &str, port: u16, front: SocketAddr, server: SocketAddr) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/proxy.md");
    let guide = fs::read_to_string(path).expect("the guide");
    let ours = format!("127.0.0.1:{port}");
    let begin = format!("```{language}\n");
    let blocks = guide.split(&begin).skip(1);
    let mut blocks = blocks.filter_map(|block| block.split("```").next());
    let block = blocks.find(|block| block.contains(&ours));
    block
        .expect("it has one")
        .replace(&ours, &server.to_string())
        .replace("listen 80;", &format!("listen {front};"))
        .replace("listen 443;", &format!("listen {front};"))
        .replace("bind :80", &format!("bind {front}"))
        .replace("bind :443", &format!("bind {front}"))
}

fn serve(setup: Setup, further: &str) -> Server {
    let listen = format!("trusted_proxies = [\"127.0.0.1\"]\n{further}\n# The default of hosts.");
    let options = Options {
        listen: &listen,
        routes: ROUTES,
        files: &[("app.lua", APP)],
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// Asserts that the server sees the real address of a client behind a proxy, over HTTP and
/// WebSocket, although the client sends a forged address.
fn works_through(front: SocketAddr) {
    // The client's address must not be the proxies' own, which is trusted.
    let client = IpAddr::from([127, 0, 0, 2]);
    let mut http = Http::over(connect_from(client, front));
    for _ in 0..3 {
        let headers = "X-Forwarded-For: 6.6.6.6\r\n";
        let response = http.request("GET", "/whoami", headers, b"");
        let response = response.expect("an answer");
        assert_eq!((response.status, response.text()), (200, "127.0.0.2\n"));
    }
    let socket = connect_from(client, front);
    let mut socket = Socket::upgrade(socket, "/app", &[("X-Forwarded-For", "6.6.6.6")])
        .expect("it is passed on");
    assert_eq!(socket.text(), "127.0.0.2");
    socket.leave();
}

#[test]
fn nginx_in_front() {
    on_all(|setup| {
        let server = serve(setup, "");
        let nginx = Nginx::start(|front, _| block("nginx", 8080, front, server.public), &[]);
        works_through(nginx.address);
    });
}

#[test]
fn nginx_passes_connections_on() {
    on_all(|setup| {
        let server = serve(setup, "proxy_protocol = true");
        let nginx = Nginx::passing(|front| block("nginx", 8443, front, server.public));
        works_through(nginx.address);
    });
}

/// A HAProxy process, killed when it is dropped.
struct HaProxy(Child);

impl HaProxy {
    /// Starts HAProxy with the guide's configuration block for `port`; returns its address.
    fn start(server: &Server, port: u16) -> (Self, SocketAddr) {
        let front = free_address();
        let config = server.folder.join("haproxy.cfg");
        fs::write(&config, block("haproxy", port, front, server.public)).expect("written");
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-q").arg("-f").arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn();
        let haproxy = Self(child.expect("haproxy, which `make setup` installs"));
        until("haproxy", || TcpStream::connect(front).is_ok());
        (haproxy, front)
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn haproxy_in_front() {
    on_all(|setup| {
        let server = serve(setup, "");
        let (_haproxy, front) = HaProxy::start(&server, 8080);
        works_through(front);
    });
}

#[test]
fn haproxy_passes_connections_on() {
    on_all(|setup| {
        let server = serve(setup, "proxy_protocol = true");
        let (_haproxy, front) = HaProxy::start(&server, 8443);
        works_through(front);
    });
}
