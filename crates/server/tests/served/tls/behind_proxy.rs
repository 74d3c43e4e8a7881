//! TLS behind a proxy that names the client and forwards encrypted data.

use std::io::Write as _;
use std::net::TcpStream;

use super::TlsFixture;
use super::client::Client;
use crate::support::{Options, on_all};

const ROUTES: &str = "[[route]]\npath = \"/whoami\"\nhandler = \"lua\"\nscript = \"app.lua\"\n";
const APP: &str = "local app = {}\nfunction app.request(req) return req.remote end\nreturn app\n";

#[test]
fn the_header_comes_before_tls() {
    on_all(|setup| {
        let fixture = TlsFixture::start(
            setup,
            "trusted_proxies = [\"127.0.0.1\"]\nproxy_protocol = true",
            &Options {
                routes: ROUTES,
                files: &[("app.lua", APP)],
                ..Options::default()
            },
        );
        let open = |header: &[u8]| {
            let mut socket = TcpStream::connect(fixture.server.public).expect("it listens");
            socket.write_all(header).expect("it reads");
            Client::over(socket, "localhost", &fixture.trust)
        };
        for client in ["192.0.2.7", "192.0.2.8"] {
            let header = format!("PROXY TCP4 {client} 198.51.100.1 56324 443\r\n");
            let mut client_of_tls = open(header.as_bytes()).expect("it opens");
            let answer = client_of_tls.last_request("/whoami").expect("an answer");
            assert!(answer.ends_with(&format!("\r\n\r\n{client}")), "{answer}");
        }
        let mut echo = open(b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n").expect("it opens");
        echo.upgrade("/echo").expect("it opens");
        echo.echoes(b"through a proxy");
        echo.leave();
        // A connection that begins with TLS instead of the proxy's header is closed.
        assert!(open(b"").is_err());
        assert_eq!(
            fixture.count("veche_turned_away_total", "reason=\"proxy_header\""),
            1
        );
        assert_eq!(fixture.count("veche_tls_handshakes_total", ""), 3);
    });
}
