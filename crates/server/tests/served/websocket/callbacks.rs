//! Tests of `websocket.open`: the order of callbacks, and reconnecting.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::{APP, ROUTES, run, start};
use crate::peer::{Peer, PeerEvent, serve};
use crate::support::{Server, now, on_all, until};

#[test]
fn one_after_the_other_and_each_may_wait() {
    on_all(|setup| {
        let server = start(setup);
        let address = serve(|_, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            for i in 1..=5 {
                peer.say(&i.to_string());
            }
            assert_eq!(
                peer.hear(),
                PeerEvent::Message(veche_proto::websocket::MessageKind::Text, b"go".to_vec())
            );
            peer.say("last");
            peer.close(4000, "enough");
            peer.hear();
        });
        let results = run(
            &server,
            &format!(
                r#"
                local lines, over = {{}}, veche.channel(1)
                local function tell(...) lines[#lines + 1] = table.concat({{ ... }}, " ") end
                local ws
                ws = websocket.open("ws://{address}/", {{
                  onopen = function(one)
                    assert(one == ws and ws.state == "open")
                    tell("open") veche.sleep(0.1) tell("opened")
                  end,
                  onmessage = function(_, data, kind)
                    tell("message", data, kind)
                    if data == "2" then veche.sleep(0.1) end
                    if data == "3" then error("as asked") end
                    if data == "5" then ws:send("go") end
                    tell("done", data)
                  end,
                  onclose = function(_, code, reason) tell("close", code, reason) over:send(true) end,
                  onerror = function(_, why) tell("error", why) end,
                }})
                assert(ws.state == "connecting" and #lines == 0)
                over:receive()
                assert(ws.state == "closed")
                return table.concat(lines, "\n")"#
            ),
        );
        assert_eq!(
            results,
            "open\nopened\nmessage 1 text\ndone 1\nmessage 2 text\ndone 2\nmessage 3 text\nmessage 4 text\ndone 4\n\
             message 5 text\ndone 5\nmessage last text\ndone last\nclose 4000 enough"
        );
        until("the error to be logged", || {
            let log = server.log();
            log.contains("as asked") && log.contains("stack traceback")
        });
    });
}

/// Starts a server that ends each connection in a different way, and reports the time at which each connection
/// arrived.
fn fickle() -> (SocketAddr, Receiver<Duration>) {
    let (sender, receiver): (SyncSender<Duration>, _) = sync_channel(64);
    let began = now();
    let address = serve(move |number, socket| {
        let _ = sender.send(now() - began);
        match number {
            0 => {
                let mut peer = Peer::accept(socket).expect("a request");
                peer.say("first");
                peer.close(1012, "restart");
                peer.hear();
            }
            1 => {
                let mut peer = Peer::meet(socket).expect("a request");
                peer.raw(b"HTTP/1.1 503 Busy\r\n\r\n");
            }
            2 => drop(Peer::meet(socket)),
            3 => drop(Peer::accept(socket)),
            _ => {
                let mut peer = Peer::accept(socket).expect("a request");
                peer.say("last");
                peer.echo();
            }
        }
    });
    (address, receiver)
}

#[test]
fn reconnecting_until_it_is_closed() {
    on_all(|setup| {
        let server = start(setup);
        let (address, came) = fickle();
        let results = run(
            &server,
            &format!(
                r#"
                local lines, over = {{}}, veche.channel(1)
                local ws = websocket.open("ws://{address}/", {{
                  reconnect = {{ min = 0.1, max = 0.4 }},
                  onopen = function() lines[#lines + 1] = "open" end,
                  onmessage = function(ws, data)
                    lines[#lines + 1] = data
                    if data == "last" then ws:close(4000, "bye") end
                  end,
                  onclose = function(ws, code, reason)
                    lines[#lines + 1] = "close " .. code .. " " .. reason
                    if code == 4000 then over:send(true) end
                  end,
                  onerror = function(ws, why) lines[#lines + 1] = "error " .. why end,
                }})
                over:receive()
                -- It stays closed.
                veche.sleep(0.6)
                return ws.state .. "\n" .. table.concat(lines, "\n")"#
            ),
        );
        assert_eq!(
            results,
            "closed\nopen\nfirst\nclose 1012 restart\n\
             error the server answered with status 503 [refused 503]\n\
             error the server closed the connection before it answered [unreachable]\n\
             open\nclose 1006 \n\
             open\nlast\nclose 4000 bye"
        );
        let times: Vec<Duration> = came.try_iter().collect();
        assert_eq!(times.len(), 5, "{times:?}");
        // The delays before reconnects are 0.1 s, 0.2 s, 0.4 s and 0.4 s, each shortened at random by at most
        // half.
        for (pair, least) in times.windows(2).zip([50, 100, 200, 200]) {
            let between = pair[1] - pair[0];
            assert!(between >= Duration::from_millis(least), "{times:?}");
        }
    });
}

#[test]
fn closing_before_it_is_open_and_between_two() {
    on_all(|setup| {
        let server = start(setup);
        let silent = serve(|_, socket| drop(Peer::meet(socket).map(|mut peer| peer.hear())));
        let results = run(
            &server,
            &format!(
                r#"
                local calls = 0
                local function count() calls = calls + 1 end
                local callbacks = {{ onopen = count, onclose = count, onerror = count, reconnect = true }}
                -- Connections are closed before anything is sent, while dialing, and while waiting for the next attempt.
                local one = websocket.open("ws://{silent}/", callbacks)
                assert(one:close())
                local two = websocket.open("ws://{silent}/", callbacks)
                veche.sleep(0.1)
                assert(two:close())
                local failed = 0
                callbacks.onerror = function() failed = failed + 1 end
                local three = websocket.open("ws://127.0.0.1:1/", callbacks)
                veche.sleep(0.2)
                assert(three:close())
                veche.sleep(1.2)
                assert(select(2, one:close()) == "closed")
                return calls, failed, one.state, two.state, three.state"#
            ),
        );
        assert_eq!(results, "0\n1\nclosed\nclosed\nclosed");
    });
}

#[test]
fn callbacks_that_never_end_hold_nothing_but_themselves() {
    // Each callback that never ends uses the whole budget.
    let routes = ROUTES.replace("500ms", "50ms");
    assert_ne!(routes, ROUTES);
    on_all(|setup| {
        let server = Server::serving(setup, &routes, &[("app.lua", APP)]);
        let address = serve(|_, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            peer.say("loop");
            peer.say("next");
            assert!(matches!(peer.hear(), PeerEvent::Message(..)));
            peer.close(1000, "");
            peer.hear();
        });
        let results = run(
            &server,
            &format!(
                r#"
                local over = veche.channel(4)
                websocket.open("ws://{address}/", {{
                  -- This callback is stopped when its budget is used up. Messages and the next connection still arrive.
                  onopen = function() while true do end end,
                  onmessage = function(ws, data)
                    if data == "loop" then while true do end end
                    ws:send(data) over:send(data)
                  end,
                  onclose = function(ws) while true do end end,
                  reconnect = {{ min = 0.05, max = 0.05 }},
                }})
                return over:receive(), over:receive()"#
            ),
        );
        assert_eq!(results, "next\nnext");
    });
}
