//! Tests the PROXY protocol: the client named by the proxy is checked, counted and logged; untrusted peers
//! can't use the protocol.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use crate::access::{is_closed, turned_away};
use crate::proxy::{APP, ROUTES};
use crate::support::metrics::Metrics;
use crate::support::{Http, Options, SOON, Server, Setup, Socket, connect_from, on_all, until};

const LISTEN: &str = "trusted_proxies = [\"127.0.0.1\"]\nproxy_protocol = true";

fn serve(setup: Setup, listen: &str, limits: &str) -> Server {
    let listen = format!("{LISTEN}\n{listen}");
    let options = Options {
        listen: &listen,
        limits,
        routes: ROUTES,
        files: &[("app.lua", APP)],
        ..Options::default()
    };
    Server::with(setup, &options)
}

/// Returns the binary header of an IPv4 client, with a TLV such as cloud load balancers add.
fn binary(client: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13".to_vec();
    header.extend(client);
    header.extend([198, 51, 100, 1, 0xdc, 4, 1, 0xbb]);
    header.extend(b"\xea\0\x04vpce");
    header
}

fn text(client: &str) -> Vec<u8> {
    format!("PROXY TCP4 {client} 198.51.100.1 56324 443\r\n").into_bytes()
}

/// Returns a connection of the proxy that has sent these bytes.
fn proxied(server: &Server, header: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(server.public).expect("it listens");
    socket.set_nodelay(true).expect("a socket");
    socket.set_read_timeout(Some(SOON)).expect("a socket");
    // The server may have closed the connection because of its first bytes.
    let _ = socket.write_all(header);
    socket
}

/// Returns the client address that the server derives from these first bytes.
fn taken_for(server: &Server, header: &[u8]) -> String {
    let mut http = Http::over(proxied(server, header));
    let answer = http.request("GET", "/whoami", "", b"");
    answer.expect("an answer").text().trim().to_owned()
}

#[test]
fn a_connection_is_its_clients() {
    on_all(|setup| {
        let server = serve(setup, "", "");
        assert_eq!(taken_for(&server, &text("192.0.2.7")), "192.0.2.7");
        assert_eq!(taken_for(&server, &binary([192, 0, 2, 8])), "192.0.2.8");
        let v6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n";
        assert_eq!(taken_for(&server, v6), "2001:db8::7");
        // If the proxy connects for itself or for an unknown client, the connection has the proxy's address.
        let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
        assert_eq!(taken_for(&server, local), "127.0.0.1");
        assert_eq!(taken_for(&server, b"PROXY UNKNOWN\r\n"), "127.0.0.1");

        // The header arrives byte by byte, or together with a request. It applies to all requests of the connection.
        for header in [text("192.0.2.9"), binary([192, 0, 2, 9])] {
            let mut socket = proxied(&server, b"");
            for byte in &header {
                socket.write_all(&[*byte]).expect("the server reads");
            }
            let mut http = Http::over(socket);
            for _ in 0..3 {
                let answer = http.request("GET", "/whoami", "", b"").expect("an answer");
                assert_eq!(answer.text(), "192.0.2.9\n");
            }
            let request = b"GET /whoami HTTP/1.1\r\nHost: localhost\r\n\r\n";
            let mut http = Http::over(proxied(&server, &[&header[..], request].concat()));
            assert_eq!(http.response().expect("an answer").text(), "192.0.2.9\n");
        }

        // The client is not a trusted proxy, so its `X-Forwarded-For` is ignored.
        let mut http = Http::over(proxied(&server, &text("192.0.2.7")));
        let answer = http.request("GET", "/whoami", "X-Forwarded-For: 6.6.6.6\r\n", b"");
        assert_eq!(answer.expect("an answer").text(), "192.0.2.7\n");
        // If the client is itself a trusted proxy, its headers are used: there are two proxies in a chain.
        let mut http = Http::over(proxied(&server, b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n"));
        let answer = http.request("GET", "/whoami", "X-Forwarded-For: 192.0.2.9\r\n", b"");
        assert_eq!(answer.expect("an answer").text(), "192.0.2.9\n");

        let socket = proxied(&server, &text("192.0.2.7"));
        let mut socket = Socket::upgrade(socket, "/app", &[]).expect("it opens");
        assert_eq!(socket.text(), "192.0.2.7");
        socket.leave();
    });
}

#[test]
fn the_client_address_is_checked_and_counted() {
    on_all(|setup| {
        let server = serve(
            setup,
            "deny = [\"192.0.2.66\"]",
            "connections_per_address = 2",
        );
        assert!(is_closed(proxied(&server, &text("192.0.2.66"))));
        assert_eq!(turned_away(&server, "network"), 1.0);
        let open =
            |client: [u8; 4]| Socket::upgrade(proxied(&server, &binary(client)), "/echo", &[]);
        let first = open([192, 0, 2, 7]).expect("the first");
        let _second = open([192, 0, 2, 7]).expect("the second");
        assert!(open([192, 0, 2, 7]).is_err());
        let _other = open([192, 0, 2, 8]).expect("another client");
        first.leave();
        until("room for another", || open([192, 0, 2, 7]).is_ok());
        assert!(turned_away(&server, "connections_per_address") >= 1.0);
        // The proxy's own health checks are not counted towards any client.
        let checks: Vec<_> = (0..5)
            .map(|_| taken_for(&server, b"PROXY UNKNOWN\r\n"))
            .collect();
        assert_eq!(checks, ["127.0.0.1"; 5]);
    });
}

#[test]
fn a_clients_handshakes_are_its_own() {
    on_all(|setup| {
        let server = serve(setup, "", "handshakes_per_address = \"3/h\"");
        for _ in 0..3 {
            assert_eq!(taken_for(&server, &text("192.0.2.7")), "192.0.2.7");
        }
        assert!(is_closed(proxied(&server, &text("192.0.2.7"))));
        assert_eq!(turned_away(&server, "handshakes_per_address"), 1.0);
        assert_eq!(taken_for(&server, &text("192.0.2.8")), "192.0.2.8");
    });
}

#[test]
fn connections_without_the_header_are_rejected() {
    on_all(|setup| {
        let server = serve(setup, "", "handshake_timeout = \"1s\"");
        let stranger = connect_from([127, 0, 0, 2].into(), server.public);
        assert!(is_closed(stranger));
        until("it to be counted", || {
            turned_away(&server, "not_a_proxy") == 1.0
        });
        let too_long = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec();
        let bad: [&[u8]; 5] = [
            b"GET /whoami HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"PROXY TCP4 192.0.2.7 nobody 1 2\r\n",
            b"\x16\x03\x01\x02\0\x01",
            &too_long,
            // A header that stays incomplete until its time limit.
            b"PROXY TCP4 192.0.2.7",
        ];
        for header in bad {
            assert!(is_closed(proxied(&server, header)), "{header:?}");
        }
        assert_eq!(turned_away(&server, "proxy_header"), bad.len() as f64);
        // A peer that leaves without sending anything is only probing, so it is not counted.
        drop(proxied(&server, b""));
        server.await_connections(0);
        assert_eq!(turned_away(&server, "proxy_header"), bad.len() as f64);
        assert_eq!(taken_for(&server, &text("192.0.2.7")), "192.0.2.7");
    });
}

/// An additional listener for lines of a back end.
const LINES: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"push\"\nname = \"lines\"\n\
                     trusted_proxies = [\"127.0.0.1\"]\nproxy_protocol = true\n";

#[test]
fn lines_come_through_proxies_too() {
    on_all(|setup| {
        let server = Server::serving(setup, LINES, &[]);
        let status = server.status().expect("it runs");
        let address: SocketAddr = status["listeners"][3]["address"]
            .as_str()
            .and_then(|address| address.parse().ok())
            .expect("the fourth listener");
        let mut user = Socket::open(server.public, "/ws?user=ada");
        let mut socket = TcpStream::connect(address).expect("it listens");
        let line = b"{\"user\":\"ada\",\"data\":\"hello\"}\n";
        socket
            .write_all(&[&binary([192, 0, 2, 7])[..], line].concat())
            .expect("the server reads");
        assert_eq!(user.text(), "hello");
        assert_eq!(
            Metrics::scrape(server.internal).sum("veche_pushes_total", &[]),
            1.0
        );
    });
}
