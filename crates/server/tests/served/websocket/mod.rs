//! Tests of applications that dial WebSocket servers: Veche itself, and servers that misbehave.
//!
//! The application runs the code that it is sent, so each test contains its own Lua.

mod callbacks;
mod ends;
mod faults;
mod pressure;
mod tls;

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket as Socket2, Type};
use veche_proto::websocket::MessageKind;

use crate::peer::{Peer, PeerEvent, serve, serve_at};
use crate::support::{Http, Options, Server, Setup, Socket, on_all};

const ROUTES: &str = "
[[route]]
path = \"/run\"
handler = \"lua\"
script = \"app.lua\"
cpu_budget = \"500ms\"";

const APP: &str = r#"
local app = {}

-- Runs the script in the request body. The response contains the script's results, one per line.
function app.request(req)
  local chunk = assert(load(req.body, "=test"))
  local results = { pcall(chunk) }
  local lines = {}
  for i = 2, table.maxn(results) do lines[#lines + 1] = tostring(results[i]) end
  return (results[1] and "" or "error: ") .. table.concat(lines, "\n")
end

return app
"#;

fn start(setup: Setup) -> Server {
    start_with(setup, &[])
}

fn start_with(setup: Setup, files: &[(&str, &str)]) -> Server {
    let files: Vec<_> = files.iter().copied().chain([("app.lua", APP)]).collect();
    Server::serving(setup, ROUTES, &files)
}

/// Runs a script in the application and returns the script's result or error.
#[track_caller]
fn run(server: &Server, script: &str) -> String {
    let script =
        format!("local veche = require 'veche'\nlocal websocket = veche.websocket\n{script}");
    let response = Http::connect(server.public)
        .request("POST", "/run", "", script.as_bytes())
        .expect("an answer");
    assert_eq!(
        response.status,
        200,
        "{}\n{}",
        response.text(),
        server.log()
    );
    response.text().to_owned()
}

#[test]
fn an_echo_by_our_own_server() {
    on_all(|setup| {
        let server = start(setup);
        let url = format!("ws://{}/echo", server.public);
        let results = run(
            &server,
            &format!(
                r#"
                local ws = websocket.connect("{url}")
                assert(ws.state == "open" and ws.url == "{url}" and ws.protocol == nil)
                assert(tostring(ws) == "websocket {url}")
                for _, text in ipairs {{ "hello", "", "вече", ("x"):rep(60000) }} do
                  assert(ws:send(text) == true)
                  local data, kind = ws:receive()
                  assert(data == text and kind == "text")
                end
                local bytes = "\0\255\128"
                ws:send(bytes, "binary")
                local data, kind = ws:receive(5)
                assert(data == bytes and kind == "binary")
                local nothing, why = ws:receive(0.01)
                assert(nothing == nil and why == "timeout")
                -- Many messages in flight arrive in order.
                for i = 1, 1000 do ws:send(tostring(i)) end
                for i = 1, 1000 do assert(ws:receive() == tostring(i)) end
                assert(ws:close(4001, "enough"))
                local gone, code, reason = ws:receive()
                assert(gone == nil and code == 4001 and reason == "enough")
                assert(ws.state == "closed")
                local sent, why = ws:send("late")
                assert(sent == nil and why == "closed")
                assert(select(2, ws:close()) == "closed")
                assert(select(2, ws:receive()) == 4001)
                return "done""#
            ),
        );
        assert_eq!(results, "done");
    });
}

#[test]
fn many_at_once() {
    on_all(|setup| {
        let server = start(setup);
        let results = run(
            &server,
            &format!(
                r#"
                local tasks = {{}}
                for i = 1, 200 do
                  tasks[i] = veche.spawn(function()
                    local ws = websocket.connect("ws://{}/echo")
                    local sum = 0
                    for j = 1, 20 do
                      ws:send(i .. ":" .. j)
                      assert(ws:receive() == i .. ":" .. j)
                      sum = sum + 1
                    end
                    ws:close()
                    return sum
                  end)
                end
                local sum = 0
                for _, task in ipairs(tasks) do sum = sum + task:join() end
                return sum"#,
                server.public
            ),
        );
        assert_eq!(results, "4000");
        // No connection stays open on the dialed server.
        server.await_connections(0);
    });
}

/// Clients wait for `app.start`, but outgoing connections do not.
#[test]
fn an_application_may_dial_before_anything_else() {
    const STARTS: &str = r#"
        local veche = require "veche"
        local app, first = {}, nil
        function app.start()
          local ws = veche.websocket.connect(veche.config.source)
          ws:send("what is first?")
          first = ws:receive() .. ws:receive()
          ws:close()
        end
        function app.open(conn) conn:send(first) end
        return app"#;
    on_all(|setup| {
        let source = serve(|_, socket| {
            let Some(mut peer) = Peer::accept(socket) else {
                return;
            };
            peer.hear();
            peer.say("this, ");
            peer.say("then that");
            peer.hear();
        });
        let routes = format!(
            "[[route]]\npath = \"/starts\"\nhandler = \"lua\"\nscript = \"starts.lua\"\n\
             options = {{ source = \"ws://{source}/\" }}"
        );
        let server = Server::with(
            setup,
            &Options {
                routes: &routes,
                files: &[("starts.lua", STARTS)],
                ..Options::default()
            },
        );
        for _ in 0..6 {
            let mut client = Socket::open(server.public, "/starts");
            assert_eq!(client.text(), "this, then that");
        }
    });
}

#[test]
fn what_the_request_says() {
    on_all(|setup| {
        let server = start(setup);
        let address = serve(|_, socket| {
            let mut peer = Peer::meet(socket).expect("a request");
            peer.agree(Some("chat.v2"));
            let head = peer.head.clone();
            peer.say(&head);
            peer.echo();
        });
        let results = run(
            &server,
            &format!(
                r#"
                local ws = websocket.connect("ws://{address}/a/b?c=d%20e", {{
                  protocols = {{ "chat.v1", "chat.v2" }}, compression = true,
                  headers = {{ Origin = "https://example.org", ["X-Two"] = {{ "1", "2" }}, Cookie = "a=b" }},
                }})
                return ws.protocol, ws:receive()"#
            ),
        );
        let (protocol, head) = results.split_once('\n').expect("two values");
        assert_eq!(protocol, "chat.v2");
        let lines: Vec<&str> = head.lines().map(|line| line.trim_end()).collect();
        assert_eq!(lines[0], "GET /a/b?c=d%20e HTTP/1.1");
        assert_eq!(lines[1], format!("Host: {address}"));
        for line in [
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: chat.v1, chat.v2",
            "Origin: https://example.org",
            "X-Two: 1",
            "X-Two: 2",
            "Cookie: a=b",
        ] {
            assert!(lines.contains(&line), "{line} in {head}");
        }
        assert!(
            head.contains("Sec-WebSocket-Extensions: permessage-deflate"),
            "{head}"
        );
    });
}

#[test]
fn names_and_addresses_of_both_families() {
    on_all(|setup| {
        let server = start(setup);
        let port = server.public.port();
        let script = |host: &str, port: u16| {
            format!(
                "local ws = websocket.connect('ws://{host}:{port}/echo')\n\
                 ws:send('x') return ws:receive()"
            )
        };
        assert_eq!(run(&server, &script("localhost", port)), "x\ntext");
        let echo = |_, socket| Peer::accept(socket).expect("a request").echo();
        if let Ok(address) = serve_at("[::1]:0", echo) {
            assert_eq!(run(&server, &script("[::1]", address.port())), "x\ntext");
            // The first address of the name is bound by this socket, which does not listen, so connecting to it fails.
            let nobody = Socket2::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            let first = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
            if nobody.bind(&first.into()).is_ok() {
                assert_eq!(
                    run(&server, &script("localhost", address.port())),
                    "x\ntext"
                );
            }
        }
        let results = run(&server, &script("no-such-host.invalid", port));
        assert!(results.contains("no-such-host.invalid"), "{results}");
        assert!(
            results.starts_with("error: test:3: ws://no-such-host.invalid"),
            "{results}"
        );
    });
}

#[test]
fn compression_where_it_is_offered_and_taken() {
    on_all(|setup| {
        let server = Server::with(
            setup,
            &Options {
                routes: &format!(
                    "{ROUTES}\n[[route]]\npath = \"/deflate\"\nhandler = \"echo\"\ncompression = true"
                ),
                files: &[("app.lua", APP)],
                ..Options::default()
            },
        );
        let results = run(
            &server,
            &format!(
                r#"
                local ws = websocket.connect("ws://{}/deflate", {{ compression = true }})
                for size = 1, 20000, 1999 do
                  local text = ("abc"):rep(size)
                  ws:send(text)
                  assert(ws:receive() == text)
                end
                return "same""#,
                server.public
            ),
        );
        assert_eq!(results, "same");
    });
}

#[test]
fn pings_are_answered_and_a_silent_server_is_asked() {
    on_all(|setup| {
        let server = start(setup);
        let address = serve(|number, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            match number {
                0 => {
                    peer.ping(b"are you there?");
                    assert_eq!(peer.hear(), PeerEvent::Pong(b"are you there?".to_vec()));
                    assert_eq!(peer.hear(), PeerEvent::Ping);
                    peer.raw(&[0x8a, 0]);
                    assert_eq!(peer.hear(), PeerEvent::Ping);
                    peer.say("alive");
                    peer.echo();
                }
                // The peer sends nothing, not even a pong.
                _ => while peer.hear() != PeerEvent::End {},
            }
        });
        let script = format!(
            "local ws = websocket.connect('ws://{address}/', {{ ping_interval = 0.1, pong_timeout = 0.3 }})\n\
             return ws:receive()"
        );
        assert_eq!(run(&server, &script), "alive\ntext");
        assert_eq!(run(&server, &script), "nil\n1006\nno pong");
    });
}

#[test]
fn a_server_that_asks_for_patience_and_messages_in_pieces() {
    on_all(|setup| {
        let server = start(setup);
        let address = serve(|_, socket| {
            let mut peer = Peer::meet(socket).expect("a request");
            // The peer sends the 101 response byte by byte, followed by the beginning of a message.
            let head = peer.head.clone();
            let mut out = Vec::new();
            let head = veche_proto::http::parse_head(head.as_bytes(), &Default::default());
            let head = head.expect("a request");
            let upgrade = veche_proto::websocket::handshake::read(&head);
            let key = upgrade.expect("right").expect("an upgrade").key;
            veche_proto::websocket::handshake::write_response(&mut out, key, None, None);
            // The message "one", and then "two" in two fragments with a ping between them.
            out.extend_from_slice(b"\x81\x03one\x01\x01t\x89\x00\x80\x02wo");
            for byte in out {
                peer.raw(&[byte]);
            }
            assert_eq!(peer.hear(), PeerEvent::Pong(Vec::new()));
            assert_eq!(
                peer.hear(),
                PeerEvent::Message(MessageKind::Text, b"thanks".to_vec())
            );
            peer.close(1000, "bye");
            assert_eq!(peer.hear(), PeerEvent::Close(Some(1000), "bye".into()));
        });
        let results = run(
            &server,
            &format!(
                "local ws = websocket.connect('ws://{address}/')\n\
                 local one, two = ws:receive(), ws:receive()\n\
                 ws:send('thanks')\n\
                 return one, two, ws:receive()"
            ),
        );
        assert_eq!(results, "one\ntwo\nnil\n1000\nbye");
    });
}
