//! Tests of how a turn divides its time among handlers. A clock counts each run as one tick, so that the tests do not
//! depend on a real clock.

mod support;

use std::time::Duration;

use support::{ANN, BOB, Bench, limits, request};
use veche_calls::{CallOutcome, CallReply};
use veche_script::{AppWorld, ConnectionId, Effect, MessageKind, ScriptLimits, Token};

/// Returns the lines that the script has printed.
fn lines(bench: &mut Bench) -> Vec<String> {
    let effects = bench.effect_lines().into_iter();
    effects.filter(|line| !line.starts_with("ready ")).collect()
}

/// Returns the id of connection `number`.
fn client(number: u32) -> ConnectionId {
    ConnectionId {
        index: 10 + number,
        generation: 1,
    }
}

/// Runs one turn of a worker: handles a message of each client that is not busy, and then runs the VM's turn. Each
/// client always has a further message.
fn turn_with_messages(bench: &mut Bench, clients: u32) {
    bench.now.mono_ms += 20;
    for number in 0..clients {
        if !bench.vm.is_busy_with(client(number)) {
            let data = number.to_string();
            bench.vm.message(
                client(number),
                MessageKind::Text,
                data.as_bytes(),
                bench.now,
            );
        }
    }
}

fn addresses() -> CallOutcome {
    Ok(CallReply::Addresses(Vec::new()))
}

fn call_of(bench: &mut Bench) -> Option<Token> {
    let effects = bench.effects();
    effects.iter().find_map(|(_, effect)| match effect {
        Effect::Call { token, .. } => Some(*token),
        _ => None,
    })
}

#[test]
fn a_timer_fires_however_many_messages_wait() {
    let mut bench = Bench::counting(
        "local veche = require 'veche'
        local app, fired = {}, 0
        function app.start() veche.timer.every(0.1, function() fired = fired + 1 end) end
        function app.message(conn, data) conn:send(data) end
        function app.close() print(fired) end
        return app",
    );
    for number in 0..100 {
        bench.open(client(number));
    }
    let mut echoes = 0;
    for _ in 0..400 {
        turn_with_messages(&mut bench, 100);
        bench.vm.turn(bench.now);
        let effects = bench.effect_lines();
        echoes += effects
            .iter()
            .filter(|line| line.starts_with("send"))
            .count();
    }
    // The timer fires every 100 ms: 400 turns of 20 ms have passed in the loop above.
    bench.open(ANN);
    bench.close(ANN);
    bench.pass_some_turns(5);
    let effects = lines(&mut bench);
    let fired: u32 = effects
        .iter()
        .find_map(|line| line.parse().ok())
        .unwrap_or_else(|| panic!("{effects:?}"));
    assert!((78..=81).contains(&fired), "{fired} of 80");
    assert!(echoes >= 400, "{echoes}: a call in each turn at least");
}

#[test]
fn a_reply_waits_at_most_two_turns() {
    let mut bench = Bench::counting(
        "local veche = require 'veche'
        local app = {}
        function app.start()
          for i = 1, 20 do veche.spawn(function() while true do veche.sleep(0) end end) end
          for i = 1, 20 do veche.timer.every(0.001, function() end) end
        end
        function app.message(conn, data) if data == 'spawn' then veche.spawn(function() end) end conn:send(data) end
        function app.request() veche.resolve('example.org') print('resolved') return 'yes' end
        return app",
    );
    for number in 0..100 {
        bench.open(client(number));
    }
    for _ in 0..50 {
        bench.vm.request(BOB, request("GET", "/", ""), bench.now);
        let token = loop {
            turn_with_messages(&mut bench, 100);
            bench.vm.turn(bench.now);
            if let Some(token) = call_of(&mut bench) {
                break token;
            }
        };
        // The result of the call `token` arrives when the messages have used their share of the turn.
        turn_with_messages(&mut bench, 100);
        bench.vm.replied(token, addresses(), bench.now);
        bench.vm.turn(bench.now);
        let mut effects = lines(&mut bench);
        if !effects.contains(&"resolved".to_owned()) {
            turn_with_messages(&mut bench, 100);
            bench.vm.turn(bench.now);
            effects = lines(&mut bench);
        }
        assert!(effects.contains(&"resolved".to_owned()), "{effects:?}");
    }
}

#[test]
fn calls_come_in_their_order_and_all_of_them() {
    let mut bench = Bench::counting(
        "local app = {}
        function app.message(conn, data) conn:send(data) end
        return app",
    );
    bench.open(ANN);
    bench.open(BOB);
    bench.vm.turn(bench.now);
    bench.now.mono_ms += 1;
    for number in 0..20 {
        let id = if number % 2 == 0 { ANN } else { BOB };
        let data = number.to_string();
        bench
            .vm
            .message(id, MessageKind::Text, data.as_bytes(), bench.now);
    }
    let at_once = bench.effect_lines();
    assert_eq!(at_once, ["send ann text 0", "send bob text 1"]);
    bench.pass_some_turns(40);
    let effects = lines(&mut bench);
    for (name, first) in [("ann", 2), ("bob", 3)] {
        let begin = format!("send {name} ");
        let its: Vec<_> = effects.iter().filter(|l| l.starts_with(&begin)).collect();
        let expected: Vec<_> = (first..20)
            .step_by(2)
            .map(|number| format!("send {name} text {number}"))
            .collect();
        assert_eq!(its, expected.iter().collect::<Vec<_>>());
    }
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn a_yielding_handler_continues_after_the_next_poll_and_last() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.message(conn, data)
          if data == 'yield' then
            for i = 1, 3 do veche.sleep(0) print('yielded', i) end
          else
            print(data)
          end
        end
        return app",
    );
    bench.open(ANN);
    bench.open(BOB);
    bench.text(ANN, "yield");
    // Messages that were already received belong to this turn.
    bench.vm.turn(bench.now);
    assert_eq!(bench.effect_lines(), [""; 0]);
    assert_eq!(bench.vm.deadline_ms(), 0);
    for round in 1..=3 {
        bench.vm.message(BOB, MessageKind::Text, b"bob", bench.now);
        bench.vm.turn(bench.now);
        assert_eq!(
            lines(&mut bench),
            ["bob".to_owned(), format!("yielded\t{round}")]
        );
    }
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn loops_over_what_is_ready_let_others_run() {
    for (what, fill, body) in [
        (
            "a queue",
            "for i = 1, 500 do q:push(i) end",
            "while q:count() > 0 do q:pop(1) done = done + 1 end",
        ),
        (
            "a queue that is filled",
            "",
            "while done < 500 do q:push(done, 1) done = done + 1 end",
        ),
        (
            "changes of a table",
            "watch = t:changes() for i = 1, 500 do t:upsert { id = i } end",
            "for change in watch do done = done + 1 if done == 500 then break end end",
        ),
        (
            "a channel",
            "for i = 1, 500 do c:send(i) end",
            "for _ in c:values() do done = done + 1 if done == 500 then break end end",
        ),
        (
            "a channel that is filled",
            "",
            "while done < 500 do c:send(done) done = done + 1 end",
        ),
        (
            "a semaphore",
            "",
            "while done < 500 do s:with(function() done = done + 1 end) end",
        ),
        (
            "a waitgroup",
            "",
            "while done < 500 do w:wait() done = done + 1 end",
        ),
        (
            "a task that has ended",
            "ended = veche.spawn(function() end) veche.sleep(0.01)",
            "while done < 500 do ended:join() done = done + 1 end",
        ),
        (
            "rows of a table",
            "rows()",
            "for row in t:scan('key') do done = done + 1 end",
        ),
        (
            "values of a table",
            "rows()",
            "for id in t:values('key', { columns = { 'id' } }) do done = done + 1 end",
        ),
        (
            "many short scans",
            "for id = 1, 3 do t:upsert { id = id } end",
            "while done < 1500 do for row in t:scan('key') do done = done + 1 end end",
        ),
    ] {
        let mut bench = Bench::counting(&format!(
            "local veche = require 'veche'
            local app, done, watch, ended = {{}}, 0
            local q, c = veche.queue('q', {{ capacity = 1000 }}), veche.channel(1000)
            local t = veche.table('t', {{ key = 'id:u32', columns = {{}} }})
            local s, w = veche.semaphore(1), veche.waitgroup()
            local function rows()
              t:batch(function(batch) for id = 1, 10000 do batch:insert {{ id = id }} end end)
              t:batch(function(batch) for id = 10001, 20000 do batch:insert {{ id = id }} end end)
            end
            function app.start() {fill} end
            function app.message(conn, data)
              if data == 'done?' then return print(done) end
              {body}
              print('end')
            end
            return app"
        ));
        bench.pass_time();
        assert_eq!(bench.effect_lines(), [""; 0], "{what}");
        bench.open(ANN);
        bench.open(BOB);
        bench.text(ANN, "go");
        let mut seen = Vec::new();
        for _ in 0..1000 {
            bench.text(BOB, "done?");
            bench.advance(1);
            seen.extend(lines(&mut bench));
            if bench.vm.tasks() == 0 {
                break;
            }
        }
        let between: Vec<u32> = seen.iter().filter_map(|line| line.parse().ok()).collect();
        assert!(seen.contains(&"end".to_owned()), "{what}: {seen:?}");
        assert!(between.len() >= 4, "{what}: {seen:?}");
    }
}

#[test]
fn a_scan_with_much_work_for_each_row_is_not_stopped() {
    let mut bench = Bench::in_world(
        &AppWorld::default(),
        "local veche = require 'veche'
        local app = {}
        local t = veche.table('t', { key = 'id:u32', columns = {} })
        function app.start() for id = 1, 100 do t:insert { id = id } end end
        function app.message()
          local count, x = 0, 0
          for row in t:scan('key') do
            local began = os.clock()
            while os.clock() - began < 0.004 do x = x + 1 end
            count = count + 1
          end
          print(count)
        end
        return app",
        ScriptLimits {
            cpu_budget: Duration::from_millis(100),
            ..limits()
        },
    );
    bench.open(ANN);
    bench.text(ANN, "go");
    let mut told = lines(&mut bench);
    for _ in 0..1000 {
        bench.advance(1);
        told.extend(lines(&mut bench));
    }
    assert_eq!(told, ["100"]);
}
