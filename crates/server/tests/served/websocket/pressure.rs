//! Backpressure in both directions: the server sends nothing to a peer that does not receive, and a peer can't send
//! more to the server than an application reads. Nothing is lost, and memory stays flat.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use veche_proto::websocket::MessageKind;

use super::{run, start};
use crate::peer::{Peer, PeerEvent, serve};
use crate::support::{on_all, until};

/// The size is chosen so that all messages together exceed the buffers of the kernel and of the server.
const MESSAGE_BYTES: usize = 10_000;
const MESSAGES: usize = 3000;

fn message(number: usize) -> Vec<u8> {
    let mut message = format!("{number:06}").into_bytes();
    message.resize(MESSAGE_BYTES, b'x');
    message
}

#[test]
fn a_script_that_does_not_receive_holds_the_server_back() {
    on_all(|setup| {
        let server = start(setup);
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let address = serve(move |_, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            for number in 0..MESSAGES {
                assert!(peer.send(MessageKind::Text, &message(number)));
                counted.fetch_add(1, Relaxed);
            }
            peer.close(1000, "all");
            peer.hear();
        });
        let script = format!(
            r#"
            local ws = websocket.connect("ws://{address}/")
            while not veche.dict("test"):get("go") do veche.sleep(0.02) end
            for i = 0, {last} do
              assert(ws:receive():sub(1, 6) == ("%06d"):format(i))
            end
            return ws:receive()"#,
            last = MESSAGES - 1
        );
        thread::scope(|scope| {
            let receiver = scope.spawn(|| run(&server, &script));
            // Waits until the sender makes no further progress.
            let mut before = usize::MAX;
            until("the server to be held back", || {
                thread::sleep(Duration::from_millis(300));
                let now = sent.load(Relaxed);
                let stands = now > 0 && now == before;
                before = now;
                stands
            });
            assert!(before < MESSAGES, "all of it was taken");
            run(&server, "veche.dict('test'):set('go', true)");
            assert_eq!(receiver.join().expect("no panic"), "nil\n1000\nall");
        });
    });
}

#[test]
fn a_server_that_does_not_read_makes_send_say_so() {
    on_all(|setup| {
        let server = start(setup);
        let received_count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&received_count);
        let address = serve(move |_, socket| {
            let mut peer = Peer::accept(socket).expect("a request");
            // Messages of the peer are received while the peer reads nothing.
            peer.say("said while nothing was read");
            assert_eq!(
                peer.hear(),
                PeerEvent::Message(MessageKind::Text, b"hello".to_vec())
            );
            thread::sleep(Duration::from_millis(500));
            loop {
                match peer.hear() {
                    PeerEvent::Message(_, data) => {
                        assert_eq!(data, message(counted.load(Relaxed)));
                        counted.fetch_add(1, Relaxed);
                    }
                    PeerEvent::Close(..) => return peer.close(1000, ""),
                    other => panic!("{other:?}"),
                }
            }
        });
        let results = run(
            &server,
            &format!(
                r#"
                local ws = websocket.connect("ws://{address}/")
                ws:send("hello")
                local waits = 0
                for i = 0, {last} do
                  local text = ("%06d"):format(i) .. ("x"):rep({rest})
                  while true do
                    local sent, why = ws:send(text)
                    if sent then break end
                    assert(why == "full", why)
                    waits = waits + 1
                    assert(ws:drain() == true)
                  end
                end
                local said = ws:receive()
                ws:close()
                return said, waits > 0, ws:receive()"#,
                last = MESSAGES - 1,
                rest = MESSAGE_BYTES - 6
            ),
        );
        assert_eq!(results, "said while nothing was read\ntrue\nnil\n1000\n");
        until("all of it to be heard", || {
            received_count.load(Relaxed) == MESSAGES
        });
    });
}

/// Both ends send much before either reads. If a side stopped reading while it can't send, the two would deadlock.
#[test]
fn two_that_send_much_to_each_other() {
    on_all(|setup| {
        let server = start(setup);
        let results = run(
            &server,
            &format!(
                r#"
                local ws = websocket.connect("ws://{}/echo")
                local text, sent, waits = ("x"):rep(50000), 0, 0
                local reader = veche.spawn(function()
                  for i = 1, 400 do assert(ws:receive() == text) end
                  return "all"
                end)
                while sent < 400 do
                  if ws:send(text) then sent = sent + 1 else assert(ws:drain()) end
                end
                return reader:join()"#,
                server.public
            ),
        );
        assert_eq!(results, "all");
    });
}

#[test]
fn a_sender_waiting_for_room_learns_of_the_close() {
    on_all(|setup| {
        let server = start(setup);
        let address = serve(|_, socket| {
            let peer = Peer::accept(socket);
            thread::sleep(Duration::from_secs(1));
            drop(peer);
        });
        let results = run(
            &server,
            &format!(
                r#"
                local ws = websocket.connect("ws://{address}/")
                while true do
                  local sent, why = ws:send(("x"):rep(100000), "binary")
                  if why == "closed" then error("nobody waited") end
                  if not sent then
                    local room, why = ws:drain()
                    if not room then return room, why end
                  end
                end"#
            ),
        );
        assert_eq!(results, "nil\nclosed");
    });
}
