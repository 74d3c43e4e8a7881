//! Behind a proxy, as the guide says: its configurations of nginx and HAProxy pass WebSockets and clients' addresses on.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::nginx::{Nginx, free_address};
use crate::support::{Http, Options, Server, Setup, Socket, connect_from, on_all, until};

const ROUTES: &str = "
[[route]]
path = \"/whoami\"
handler = \"lua\"
script = \"app.lua\"
[[route]]
path = \"/app\"
handler = \"lua\"
script = \"app.lua\"
";

const APP: &str = r#"
local app = {}
function app.request(req) return req.remote .. "\n" end
function app.open(conn) conn:send(conn.remote) end
return app
"#;

/// The guide's block in that language, with the addresses of the test.
fn block(language: &str, front: SocketAddr, server: SocketAddr) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/proxy.md");
    let guide = fs::read_to_string(path).expect("the guide");
    let start = guide.split(&format!("```{language}\n")).nth(1);
    let block = start.expect("it has one").split("```").next();
    let block = block.expect("its end");
    assert!(block.contains("127.0.0.1:8080"), "{block}");
    block
        .replace("127.0.0.1:8080", &server.to_string())
        .replace("listen 80;", &format!("listen {front};"))
        .replace("bind :80", &format!("bind {front}"))
}

fn serve(setup: Setup) -> Server {
    let options = Options {
        listen: "trusted_proxies = [\"127.0.0.1\"]\n# The default of hosts.",
        routes: ROUTES,
        files: &[("app.lua", APP)],
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// What a client that lies about its address sees through a proxy: the truth, by HTTP and by WebSocket.
fn works_through(front: SocketAddr) {
    // Not the proxies' own address, which is trusted.
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
        let server = serve(setup);
        let nginx = Nginx::start(|front, _| block("nginx", front, server.public), &[]);
        works_through(nginx.address);
    });
}

/// HAProxy, ended with its test.
struct HaProxy(Child);

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn haproxy_in_front() {
    on_all(|setup| {
        let server = serve(setup);
        let front = free_address();
        let config = server.folder.join("haproxy.cfg");
        fs::write(&config, block("haproxy", front, server.public)).expect("written");
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-q").arg("-f").arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn();
        let _haproxy = HaProxy(child.expect("haproxy, which `make setup` installs"));
        until("haproxy", || TcpStream::connect(front).is_ok());
        works_through(front);
    });
}
