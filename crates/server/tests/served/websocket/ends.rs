//! Outgoing connections that the server ends: when it stops, when code is replaced, and when a coroutine is cancelled.

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::{run, start};
use crate::peer::{Peer, PeerEvent, serve};
use crate::support::metrics::Metrics;
use crate::support::{Options, Server, Socket, on_all, setups, until};

/// Returns a script that opens one connection at its start.
fn keeper(address: std::net::SocketAddr, more: &str) -> String {
    format!(
        "local veche = require 'veche'\nlocal app = {{}}\n\
         function app.start()\n\
           if veche.worker ~= 0 then return end\n\
           veche.websocket.open('ws://{address}/', {{ reconnect = {{ min = 0.05, max = 0.1 }},\n\
             onopen = function(ws) ws:send('opened {more}') end }})\n\
         end\n\
         function app.message(conn, data) conn:send(data) end\n\
         return app"
    )
}

const KEEPER: &str = "
[[route]]
path = \"/keeper\"
handler = \"lua\"
script = \"keeper.lua\"";

#[test]
fn at_the_stop_of_the_server_it_is_closed_after_our_own_clients() {
    on_all(|setup| {
        let (sender, receiver) = sync_channel(8);
        let address = serve(move |_, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            loop {
                match peer.hear() {
                    PeerEvent::Close(code, _) => {
                        let _ = sender.send(format!("closed {code:?}"));
                        return peer.close(code.unwrap_or(1000), "");
                    }
                    PeerEvent::Message(_, data) => {
                        let _ = sender.send(String::from_utf8(data).expect("text"));
                    }
                    PeerEvent::End => return,
                    _ => {}
                }
            }
        });
        let mut server = Server::with(
            setup,
            &Options {
                routes: KEEPER,
                files: &[("keeper.lua", &keeper(address, "once"))],
                limits: "drain_time = \"2s\"",
                ..Options::default()
            },
        );
        assert_eq!(receiver.recv().expect("told"), "opened once");
        let mut client = Socket::open(server.public, "/keeper");
        client.say("x");
        assert_eq!(client.text(), "x");
        server.signal(Signal::TERM);
        assert_eq!(client.closed(), 1001);
        assert_eq!(receiver.recv().expect("told"), "closed Some(1001)");
        assert_eq!(server.exit_code(), Some(0));
    });
}

#[test]
fn replaced_code_closes_its_outgoing_connections() {
    on_all(|setup| {
        let (sender, receiver) = sync_channel(64);
        let address = serve(move |number, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            loop {
                match peer.hear() {
                    PeerEvent::Close(code, _) => {
                        let _ = sender.send(format!("{number}: closed {code:?}"));
                        return peer.close(code.unwrap_or(1000), "");
                    }
                    PeerEvent::Message(_, data) => {
                        let data = String::from_utf8(data).expect("text");
                        let _ = sender.send(format!("{number}: {data}"));
                    }
                    PeerEvent::End => return,
                    _ => {}
                }
            }
        });
        let (old, new) = (keeper(address, "old"), keeper(address, "new"));
        let (old, new) = ([("keeper.lua", &*old)], [("keeper.lua", &*new)]);
        let options = |files| Options {
            routes: KEEPER,
            files,
            ..Options::default()
        };
        let server = Server::with(setup, &options(&old));
        assert_eq!(receiver.recv().expect("told"), "0: opened old");
        server.configure(&options(&new));
        server.signal(Signal::HUP);
        let mut both = [
            receiver.recv().expect("told"),
            receiver.recv().expect("told"),
        ];
        both.sort();
        assert_eq!(both, ["0: closed Some(1001)", "1: opened new"]);
        // After the reload, nothing opens the connection of the old code again.
        thread::sleep(Duration::from_millis(500));
        assert!(receiver.try_recv().is_err());
        let open = || Metrics::scrape(server.internal).sum("veche_app_clients", &[]);
        until("one connection to be left", || open() == 1.0);
    });
}

#[test]
fn a_cancelled_coroutine_dials_no_longer() {
    on_all(|setup| {
        let server = start(setup);
        let (sender, receiver) = sync_channel(8);
        let address = serve(move |_, socket| {
            let mut peer = Peer::meet(socket).expect("a request");
            // The peer sends no response, and reports the end of the connection.
            let _ = sender.send(peer.hear());
        });
        let script = format!(
            r#"
            local task = veche.spawn(function() websocket.connect("ws://{address}/") end)
            veche.sleep(0.1)
            task:cancel()
            local ok, why = pcall(task.join, task)
            return ok, why"#
        );
        let answer = run(&server, &script);
        assert!(
            answer.starts_with("false\n") && answer.ends_with("cancelled"),
            "{answer}"
        );
        assert_eq!(receiver.recv().expect("told"), PeerEvent::End);
        // A coroutine that is cancelled while it receives takes no message from other coroutines.
        let talker = serve(|_, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            peer.hear();
            peer.say("for the next one");
            peer.hear();
        });
        let answer = run(
            &server,
            &format!(
                r#"
                local ws = websocket.connect("ws://{talker}/")
                local task = veche.spawn(function() return ws:receive() end)
                veche.sleep(0.05)
                task:cancel()
                ws:send("now")
                return (ws:receive(5))"#
            ),
        );
        assert_eq!(answer, "for the next one");
    });
}

#[test]
fn a_closed_one_holds_no_memory() {
    for setup in setups().filter(|setup| setup.workers == 1) {
        let server = start(setup);
        let script = format!(
            r#"
            for i = 1, 50 do
              local ws = websocket.connect("ws://{0}/echo")
              ws:send("x") ws:receive() ws:close()
              local closed = veche.channel(1)
              local other
              other = websocket.open("ws://{0}/echo", {{
                onopen = function() other:send(("y"):rep(1000)) end,
                onmessage = function(_, data) other:close() end,
                onclose = function() closed:send(true) end,
              }})
              closed:receive()
            end
            for _ = 1, 200 do collectgarbage() end
            return collectgarbage("count")"#,
            server.public
        );
        let kib = || run(&server, &script).parse::<f64>().expect("a number");
        let before = (0..4).map(|_| kib()).fold(0.0, f64::max);
        let after = (0..10).map(|_| kib()).fold(f64::MAX, f64::min);
        // A thousand connections were opened in between: their tables and functions would take more than a megabyte.
        assert!(after < before + 300.0, "{before} KiB, then {after}");
        until("all of them to be closed", || {
            Metrics::scrape(server.internal).sum("veche_app_clients", &[]) == 0.0
        });
    }
}
