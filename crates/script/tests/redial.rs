//! Tests that outgoing WebSockets are dialed again after they end, unless the script closes them.

mod support;

use support::{ANN, BOB, Bench, limits};
use veche_script::{ConnectionId, Effect, ScriptLimits, Token};

const SERVER: ConnectionId = ConnectionId {
    index: 9,
    generation: 1,
};

fn app(callbacks: &str, handler: &str) -> Bench {
    Bench::with(
        &format!(
            "local veche, app = require 'veche', {{}}
            local keep, ws = {{}}, nil
            function app.open(conn)
              ws = veche.websocket.open('ws://127.0.0.1:9/', {{
                reconnect = {{ min = 0.1, max = 0.1 }},
                {callbacks}
              }})
            end
            function app.message(conn, data)
              {handler}
            end
            return app"
        ),
        ScriptLimits {
            memory_bytes_max: 4 << 20,
            tasks_max: 20,
            ..limits()
        },
    )
}

/// Returns the token of the next dialed connection; `None` if none is dialed within some turns.
fn dialed(bench: &mut Bench) -> Option<Token> {
    for _ in 0..400 {
        let effects = bench.effects();
        let token = effects.iter().find_map(|(_, effect)| match effect {
            Effect::Dial { token, .. } => Some(*token),
            _ => None,
        });
        if token.is_some() {
            return token;
        }
        bench.advance(1);
    }
    None
}

fn opened(bench: &mut Bench, generation: u32) -> ConnectionId {
    let token = dialed(bench).expect("it is dialed");
    let server = ConnectionId {
        generation,
        ..SERVER
    };
    assert!(bench.vm.client_opened(token, server, None, bench.now));
    server
}

const FILL: &str = "if data == 'fill' then
        while collectgarbage('count') < 4300 do keep[#keep + 1] = ('x'):rep(1000) .. #keep end
      else
        keep = {}
      end";

#[test]
fn a_full_memory_ends_no_dialing() {
    let mut bench = app("onopen = function() print('opened') end", FILL);
    bench.open(ANN);
    let server = opened(&mut bench, 1);
    bench.text(ANN, "fill");
    assert_eq!(
        bench.text(BOB, "is not taken"),
        veche_script::HandlerProgress::Done
    );
    bench.close_of(server);
    for _ in 0..3 {
        let token = dialed(&mut bench).expect("it is dialed again");
        bench.vm.client_failed(token, "refused", bench.now);
    }
    let server = opened(&mut bench, 2);
    assert_eq!(bench.next_effect_lines(), ["opened"]);
    bench.close_of(server);
    assert!(dialed(&mut bench).is_some());
}

#[test]
fn a_first_attempt_that_fails_where_memory_is_full_is_not_the_last() {
    let mut bench = app("onerror = function(_, why) print(why) end", FILL);
    bench.open(ANN);
    let token = dialed(&mut bench).expect("it is dialed");
    bench.text(ANN, "fill");
    bench.vm.client_failed(token, "refused", bench.now);
    assert_eq!(bench.next_effect_lines(), ["refused [unreachable]"]);
    assert!(dialed(&mut bench).is_some());
}

#[test]
fn neither_do_tasks_without_number_nor_callbacks_that_are_stopped() {
    let mut bench = app(
        "onclose = function() while true do end end,
        onerror = function(_, why) while true do end end,",
        "for i = 1, 50 do veche.spawn(veche.sleep, 1e6) end",
    );
    bench.open(ANN);
    let server = opened(&mut bench, 1);
    bench.text(ANN, "many");
    bench.close_of(server);
    for _ in 0..3 {
        let token = dialed(&mut bench).expect("it is dialed again");
        bench.vm.client_failed(token, "refused", bench.now);
    }
    let server = opened(&mut bench, 2);
    // Only one connection is dialed at a time.
    assert!(dialed(&mut bench).is_none());
    bench.close_of(server);
    assert!(dialed(&mut bench).is_some());
    assert!(dialed(&mut bench).is_none());
}

#[test]
fn a_callback_that_is_stopped_while_it_is_open_dials_nothing() {
    let mut bench = app(
        "onopen = function() veche.sleep(0.5) while true do end end",
        "ws:close()",
    );
    bench.open(ANN);
    let server = opened(&mut bench, 1);
    assert!(dialed(&mut bench).is_none());
    bench.advance(1000);
    bench.close_of(server);
    assert!(dialed(&mut bench).is_some());
    bench.text(ANN, "close");
    assert!(bench.effect_lines().contains(&"hang up".to_owned()));
    assert!(dialed(&mut bench).is_none());
}
