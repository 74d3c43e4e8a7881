//! Tests that a reload loses no call that has not begun, even if `app.start` of the older code waits.

mod support;

use support::{ANN, BOB, Bench, request};
use veche_script::{AppWorld, ConnectionId, MessageKind};

const EVE: ConnectionId = ConnectionId {
    index: 5,
    generation: 2,
};

fn script(name: &str, start: &str) -> String {
    format!(
        "local veche, app = require 'veche', {{}}
        function app.start() {start} end
        function app.handshake(req) return {{ user = '{name}' }} end
        function app.open(conn) conn.attributes.by = '{name}' print('{name}: open', conn.path) end
        function app.message(conn, data, kind) print('{name}: message', #data, data:gsub('[^%w ]', '?'), kind, conn.attributes.by) end
        app.drain = app.open
        function app.close(conn, code, reason) print('{name}: close', code, reason, conn.attributes.by) end
        function app.request(req) return '{name} ' .. req.path .. req.body end
        function app.stop() print('{name}: stop') end
        return app"
    )
}

#[test]
fn calls_that_wait_for_start_move() {
    let world = AppWorld::default();
    let mut bench = Bench::within(
        &world,
        &script("old", "veche.sleep(5) print('old: started')"),
    );
    bench.open(ANN);
    bench.text(ANN, "one");
    bench
        .vm
        .message(ANN, MessageKind::Binary, b"\0\xff", bench.now);
    bench.open(BOB);
    bench.text(BOB, "last words");
    bench.close(BOB);
    let mut asked = request("POST", "/path", "");
    asked.body = b"?body".to_vec();
    bench.vm.request(EVE, asked, bench.now);
    bench
        .vm
        .handshake(EVE, request("GET", "/ws", ""), bench.now);
    bench.advance(100);
    assert_eq!(bench.effect_lines(), [""; 0]);

    let mut older = bench.reload(
        &world,
        &script("new", "veche.sleep(1) print('new: started')"),
    );
    assert_eq!(bench.effect_lines(), ["old: stop"]);
    bench.text(ANN, "two");
    bench.advance(999);
    assert_eq!(bench.effect_lines(), [""; 0], "its start has not ended");
    // On a busy machine the time of the first turn may not suffice for all calls.
    let mut effects = Vec::new();
    for ms in std::iter::once(1).chain([0; 100]) {
        bench.advance(ms);
        effects.extend(bench.effect_lines());
    }
    effects.sort();
    let mut expected = vec![
        "accept EVE Some(\"new\") None".replace("EVE", &format!("{EVE:?}")),
        "new: close\t1001\tbye\tnew".into(),
        "new: message\t10\tlast words\ttext\tnew".into(),
        "new: message\t3\tone\ttext\tnew".into(),
        "new: message\t3\ttwo\ttext\tnew".into(),
        "new: message\t2\t??\tbinary\tnew".into(),
        "new: open\t/ws".into(),
        "new: open\t/ws".into(),
        "new: started".into(),
        "ready ann".into(),
    ];
    let answer = effects.iter().position(|line| line.starts_with("respond "));
    let answer = effects.remove(answer.expect("an answer"));
    assert!(answer.ends_with("new /path?body"), "{answer}");
    expected.sort();
    assert_eq!(effects, expected);

    bench.now.mono_ms += 5000;
    older.turn(bench.now);
    assert_eq!(bench.effect_lines(), ["old: started"]);
    assert!(older.is_at_rest());
    older.finish();
    bench.text(ANN, "three");
    bench.close(ANN);
    let expected = [
        "new: message\t5\tthree\ttext\tnew",
        "new: close\t1001\tbye\tnew",
    ];
    assert_eq!(bench.effect_lines(), expected);
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn connections_go_on_where_newer_code_has_no_handler_for_what_waits() {
    let world = AppWorld::default();
    let mut bench = Bench::within(&world, &script("old", "veche.sleep(5)"));
    bench.open(ANN);
    bench.open(BOB);
    bench.close(BOB);
    bench.vm.request(EVE, request("GET", "/", ""), bench.now);
    let older = bench.reload(
        &world,
        "return { message = function(conn, data) print('new: message', data) end }",
    );
    let effects = bench.effect_lines();
    assert!(effects.contains(&"ready ann".to_owned()), "{effects:?}");
    assert!(
        effects.iter().any(|line| line.contains("internal error")),
        "{effects:?}"
    );
    bench.advance(1);
    bench.text(ANN, "one");
    assert_eq!(bench.effect_lines(), ["new: message\tone"]);
    assert_eq!(bench.vm.connections(), [ANN]);
    assert_eq!(bench.vm.tasks() + older.tasks(), 1, "its start");
}

/// A call queued after a started handler stays queued, because calls of a connection keep their order.
#[test]
fn begun_handlers_stay() {
    let world = AppWorld::default();
    let slow = "local veche = require 'veche'
        return { message = function(conn, data) veche.sleep(1) print('old', data) end }";
    let mut bench = Bench::within(&world, slow);
    bench.open(ANN);
    bench.text(ANN, "one");
    bench.text(ANN, "two");
    let mut older = bench.reload(
        &world,
        "return { message = function(conn, data) print('new', data) end }",
    );
    // On a busy machine the time of one turn may not suffice to end one handler and to start the next.
    let mut effects = Vec::new();
    for _ in 0..2 {
        bench.advance(1000);
        for _ in 0..100 {
            older.turn(bench.now);
            effects.extend(bench.effect_lines());
        }
    }
    assert_eq!(effects, ["old\tone", "old\ttwo", "ready ann"]);
}
