//! Access control: networks, trusted proxies, host names, and limits per address.

use std::io::Read;
use std::net::{IpAddr, TcpStream};

use crate::support::metrics::Metrics;
use crate::support::{Http, Options, Seen, Server, Socket, connect_from, on_all, until};

/// Makes the server treat every connection over loopback as that of a trusted proxy.
const PROXY: &str = "trusted_proxies = [\"127.0.0.0/8\"]";

/// The headers of a handshake.
const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn from(client: &str) -> String {
    format!("X-Forwarded-For: 6.6.6.6, {client}\r\n")
}

pub(crate) fn turned_away(server: &Server, reason: &str) -> f64 {
    Metrics::scrape(server.internal).sum(
        "veche_turned_away_total",
        &[&format!("reason=\"{reason}\"")],
    )
}

/// Returns whether the server closes without sending anything.
pub(crate) fn is_closed(mut socket: TcpStream) -> bool {
    matches!(socket.read(&mut [0; 1]), Ok(0) | Err(_))
}

/// Returns the status of a handshake through a proxy that names the client.
fn status_of_handshake(server: &Server, target: &str, headers: &str) -> u16 {
    let mut http = Http::connect(server.public);
    let request = format!("GET {target} HTTP/1.1\r\nHost: test\r\n{UPGRADE}{headers}\r\n");
    http.raw(request.as_bytes()).expect("the server reads");
    http.head().expect("an answer").status
}

#[test]
fn networks_that_are_not_let_in_are_closed_before_they_speak() {
    on_all(|setup| {
        let options = |listen| Options {
            listen,
            ..Options::default()
        };
        let server = Server::with(setup, &options("deny = [\"127.0.0.2\", \"10.0.0.0/8\"]"));
        let other = IpAddr::from([127, 0, 0, 2]);
        assert!(is_closed(connect_from(other, server.public)));
        until("it to be counted", || {
            turned_away(&server, "network") == 1.0
        });
        let mut inside = Socket::open(server.public, "/ws?user=ann");
        assert!(inside.is_alive());

        // A reload admits one client and excludes the other; open connections stay.
        server.configure(&options("allow = [\"127.0.0.2\"]"));
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        // Workers apply a reload one after another, so the test waits for all of them.
        until("other clients to be rejected", || {
            is_closed(TcpStream::connect(server.public).expect("a connection"))
        });
        until("the one to be let in", || {
            let let_in = connect_from(other, server.public);
            Socket::upgrade(let_in, "/ws?user=bob", &[]).is_ok()
        });
        assert!(inside.is_alive());
        drop(inside);
        server.await_connections(0);
    });
}

#[test]
fn a_route_looks_at_the_client_behind_proxies_that_are_trusted() {
    const ROUTES: &str =
        "[[route]]\npath = \"/office\"\nhandler = \"echo\"\nallow = [\"192.0.2.0/24\"]";
    on_all(|setup| {
        let with = |listen| Options {
            listen,
            routes: ROUTES,
            ..Options::default()
        };
        let server = Server::with(
            setup,
            &with("trusted_proxies = [\"127.0.0.1\"]\ndeny = [\"192.0.2.66\"]"),
        );
        let status = |target, client| status_of_handshake(&server, target, &from(client));
        assert_eq!(status("/office", "192.0.2.7"), 101);
        assert_eq!(status("/office", "198.51.100.7"), 403);
        assert_eq!(status("/echo", "198.51.100.7"), 101);
        // The listener's own rules apply to clients behind the proxy too.
        assert_eq!(status("/echo", "192.0.2.66"), 403);
        // Without a header that names the client, the proxy's own address is checked.
        assert_eq!(status_of_handshake(&server, "/office", ""), 403);
        assert_eq!(turned_away(&server, "network"), 3.0);

        // A malformed first entry does not hide the entry of the nearest proxy, which names a
        // denied client.
        let mut http = Http::connect(server.public);
        http.raw(
            b"GET /whoami HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: \xff, 192.0.2.66\r\n\r\n",
        )
        .expect("the server reads");
        assert_eq!(http.response().expect("an answer").status, 403);

        // The request fails if the last entry, which the nearest proxy wrote, is not a valid address.
        for last in [
            "unknown",
            "\"192.0.2.66\"",
            "192.0.2.066",
            "fe80::1%eth0",
            "",
        ] {
            let mut http = Http::connect(server.public);
            let headers = format!("X-Forwarded-For: 6.6.6.6, {last}\r\n");
            let answer = http.request("GET", "/whoami", &headers, b"");
            assert_eq!(answer.expect("an answer").status, 400, "{last}");
        }

        // A header from an untrusted address is ignored.
        let stranger = connect_from([127, 0, 0, 2].into(), server.public);
        let refused = Socket::upgrade(stranger, "/office", &[("X-Forwarded-For", "192.0.2.7")]);
        assert!(refused.is_err());
    });
}

#[test]
fn the_proxys_own_header_is_the_only_one_that_counts() {
    const ROUTES: &str =
        "[[route]]\npath = \"/office\"\nhandler = \"echo\"\nallow = [\"192.0.2.0/24\"]";
    on_all(|setup| {
        let listen = format!("{PROXY}\nclient_address = \"header:X-Real-IP\"");
        let server = Server::with(
            setup,
            &Options {
                listen: &listen,
                routes: ROUTES,
                ..Options::default()
            },
        );
        let status = |headers| status_of_handshake(&server, "/office", headers);
        assert_eq!(status("X-Real-IP: 192.0.2.7\r\n"), 101);
        assert_eq!(status("X-Forwarded-For: 192.0.2.7\r\n"), 403);
        assert_eq!(
            status("X-Real-IP: 10.9.9.9\r\nX-Forwarded-For: 192.0.2.7\r\n"),
            403
        );
    });
}

#[test]
fn a_foreign_name_for_loopback_is_not_answered() {
    on_all(|setup| {
        // The test server allows every host name unless `listen` contains the word `hosts`. A
        // comment with that word keeps the server's default.
        for (listen, named, expected) in [
            ("# hosts: the default", "localhost:8080", 200),
            ("# hosts: the default", "127.0.0.1", 200),
            ("# hosts: the default", "evil.example", 421),
            (
                "hosts = [\"app.example\", \"*.app.example\"]",
                "APP.example:80",
                200,
            ),
            (
                "hosts = [\"app.example\", \"*.app.example\"]",
                "x.app.example",
                200,
            ),
            (
                "hosts = [\"app.example\", \"*.app.example\"]",
                "localhost",
                421,
            ),
            (PROXY, "evil.example", 200),
            (
                &format!("{PROXY}\nhosts = [\"app.example\"]"),
                "evil.example",
                421,
            ),
        ] {
            let options = Options {
                listen,
                ..Options::default()
            };
            let server = Server::with(setup, &options);
            let mut http = Http::connect(server.public);
            let request = format!("GET /index.html HTTP/1.1\r\nHost: {named}\r\n\r\n");
            http.raw(request.as_bytes()).expect("the server reads");
            let response = http.response().expect("an answer");
            assert_eq!(response.status, expected, "{listen}: {named}");
            if expected == 421 {
                assert!(response.text().contains("hosts of [[listen]]"));
                assert_eq!(turned_away(&server, "host"), 1.0);
            }
        }
    });
}

#[test]
fn behind_a_proxy_each_client_has_its_own_share() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                listen: PROXY,
                limits: "connections_per_address = 2",
                ..Options::default()
            },
        );
        let open = |client: &str| {
            let socket = TcpStream::connect(server.public).expect("the proxy is not counted");
            Socket::upgrade(socket, "/ws?user=u", &[("X-Forwarded-For", client)])
        };
        let first = open("192.0.2.7").expect("the first");
        let _second = open("192.0.2.7").expect("the second");
        assert!(open("192.0.2.7").is_err());
        assert_eq!(
            status_of_handshake(&server, "/ws?user=u", &from("192.0.2.7")),
            429
        );
        let _other = open("192.0.2.8").expect("another client");
        // IPv6 addresses of one /64 count as one client.
        let _third = open("2001:db8::1").expect("the first");
        let _fourth = open("2001:db8::2").expect("the second");
        assert!(open("2001:db8::3").is_err());
        first.leave();
        until("room for another", || open("192.0.2.7").is_ok());
        assert!(turned_away(&server, "connections_per_address") >= 3.0);
    });
}

#[test]
fn the_connection_rate_per_address_is_limited() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "handshakes_per_address = \"5/h\"",
                ..Options::default()
            },
        );
        let mut inside: Vec<Socket> = (0..5)
            .map(|_| Socket::open(server.public, "/ws?user=u"))
            .collect();
        assert!(is_closed(
            TcpStream::connect(server.public).expect("a connection")
        ));
        until("it to be counted", || {
            turned_away(&server, "handshakes_per_address") == 1.0
        });
        // The limit of handshakes per address affects neither another address, nor open connections, nor requests
        // to the internal listener.
        let other = connect_from([127, 0, 0, 2].into(), server.public);
        assert!(Socket::upgrade(other, "/ws?user=v", &[]).is_ok());
        assert!(inside.iter_mut().all(Socket::is_alive));
        (0..10).for_each(|_| drop(Metrics::scrape(server.internal)));
    });
}

#[test]
fn trying_again_on_the_same_connection_counts() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                limits: "handshakes_per_address = \"5/h\"",
                ..Options::default()
            },
        );
        let mut http = Http::connect(server.public);
        // A handshake without a user is answered with 401, and the connection stays open.
        let mut statuses = Vec::new();
        for _ in 0..7 {
            let response = http.request("GET", "/ws", UPGRADE, b"").expect("an answer");
            if response.status == 429 {
                assert_eq!(response.header("retry-after"), Some("1"));
            }
            statuses.push(response.status);
        }
        assert_eq!(statuses, [401, 401, 401, 401, 401, 429, 429]);
    });
}

#[test]
fn pending_handshakes_count_towards_the_address_limit() {
    const APP: &str = "local veche = require \"veche\"\n\
        local app = {}\n\
        function app.handshake() veche.sleep(0.3) end\n\
        function app.message(conn, data) conn:send(data) end\n\
        return app\n";
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                listen: PROXY,
                limits: "connections_per_address = 2",
                routes: "[[route]]\npath = \"/app\"\nhandler = \"lua\"\nscript = \"app.lua\"",
                files: &[("app.lua", APP)],
                ..Options::default()
            },
        );
        let sockets: Vec<_> = (0..8)
            .map(|_| {
                let public = server.public;
                std::thread::spawn(move || {
                    let socket = TcpStream::connect(public).expect("a connection");
                    Socket::upgrade(socket, "/app", &[("X-Forwarded-For", "192.0.2.7")])
                })
            })
            .collect();
        let opened = sockets
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        let mut stay = 0;
        let mut kept = Vec::new();
        for mut socket in opened.flatten() {
            socket.say("here");
            match socket.next() {
                Seen::Text(text) if text == "here" => {
                    stay += 1;
                    kept.push(socket);
                }
                Seen::Close(code, _) => assert_eq!(code, Some(1013)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(stay, 2);
    });
}

#[test]
fn a_proxy_without_a_client_address_is_checked_itself() {
    on_all(|setup| {
        let listen = "trusted_proxies = [\"127.0.0.1\"]\nclient_address = \"forwarded\"\nallow = [\"192.0.2.0/24\"]";
        let server = Server::with(
            setup,
            &Options {
                listen,
                ..Options::default()
            },
        );
        let status = |headers| status_of_handshake(&server, "/echo", headers);
        assert_eq!(status("Forwarded: for=192.0.2.7\r\n"), 101);
        assert_eq!(status(""), 403);
        assert_eq!(status("Forwarded: for=_hidden\r\n"), 400);
        assert_eq!(
            status("Forwarded: host=\"a;for=192.0.2.7;b\";for=6.6.6.6\r\n"),
            403
        );
        assert_eq!(status("Forwarded: for=\"192.0.2.7\r\n"), 400);
    });
}

#[test]
fn a_reload_reaches_connections_that_are_kept() {
    on_all(|setup| {
        let options = |listen| Options {
            listen,
            limits: "connections_per_address = 2",
            ..Options::default()
        };
        let server = Server::with(setup, &options(""));
        let other = IpAddr::from([127, 0, 0, 2]);
        let kept = || {
            let mut http = Http::over(connect_from(other, server.public));
            assert_eq!(
                http.request("GET", "/", "", b"").expect("an answer").status,
                200
            );
            http
        };
        // Before the reload, both connections count for their own address. After it, each counts for the client
        // that its header names.
        let (first, second) = (kept(), kept());
        server.configure(&options("trusted_proxies = [\"127.0.0.2\"]"));
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        for (number, http) in [first, second].into_iter().enumerate() {
            let client = format!("192.0.2.{number}");
            let socket =
                Socket::upgrade(http.socket, "/ws?user=u", &[("X-Forwarded-For", &client)]);
            socket.expect("it is open").leave();
        }
        server.await_connections(0);
        server.configure(&options(""));
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        until("its share to be its own again", || {
            let socket = connect_from(other, server.public);
            Socket::upgrade(socket, "/ws?user=u", &[]).is_ok()
        });
        server.await_connections(0);

        // A client that the reload denies gets 403 even on a connection that is already open.
        let mut http = kept();
        server.configure(&options("deny = [\"127.0.0.2\"]"));
        assert_eq!(server.ask("reload").expect("an answer")["ok"], true);
        until("the new rule", || {
            http.request("GET", "/", "", b"").expect("an answer").status == 403
        });
    });
}
