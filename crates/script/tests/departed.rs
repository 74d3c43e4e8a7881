//! Tests of handlers whose connection is closed: each of them ends soon, and `close` runs last.

mod support;

use support::{ANN, BOB, Bench};

fn app(handlers: &str) -> Bench {
    Bench::new(&format!(
        "local veche, app = require 'veche', {{}}
        {handlers}
        return app"
    ))
}

/// Returns the log entries of several turns, only the first line of each entry.
fn effect_lines(bench: &mut Bench) -> Vec<String> {
    bench.pass_some_turns(200);
    let effects = bench.effect_lines().into_iter();
    effects
        .map(|line| line.lines().next().unwrap_or_default().to_owned())
        .collect()
}

const CLOSED: &str = "the connection is closed";

#[test]
fn a_loop_ends_with_its_connection() {
    let mut bench = app("local steps = 0
        function app.open(conn)
          while true do veche.sleep(1) steps = steps + 1 end
        end
        function app.close(conn, code) print('close', code, steps) end");
    bench.open(ANN);
    bench.open(BOB);
    bench.advance(1000);
    bench.close(ANN);
    bench.close(BOB);
    let line = format!("Debug: app.lua:4: {CLOSED}");
    let each = |steps| {
        let (line, close) = (line.clone(), format!("close\t1001\t{steps}"));
        [line, "failed".to_owned(), close]
    };
    let effects = effect_lines(&mut bench).into_iter();
    let effects: Vec<String> = effects
        .map(|line| match line.starts_with("failed ") {
            true => "failed".to_owned(),
            false => line,
        })
        .collect();
    assert_eq!(effects, [each(2), each(2)].concat());
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn all_waits_fail_and_close_has_its_own() {
    let mut bench = app("local queue = veche.queue('jobs')
        function app.message(conn, data)
          print(data, select(2, pcall(queue.pop, queue)))
          print(data, select(2, pcall(veche.sleep, 1)))
        end
        function app.close(conn)
          veche.sleep(0.05)
          print('close', pcall(veche.sleep, 0.05))
        end");
    bench.open(ANN);
    bench.text(ANN, "one");
    bench.text(ANN, "two");
    bench.close(ANN);
    let line = |data: &str| format!("{data}\t{CLOSED}");
    let expected = ["one", "one", "two", "two"].map(line);
    let effects = effect_lines(&mut bench);
    assert_eq!(effects[..4], expected);
    assert_eq!(effects[4..], ["close\ttrue\tnil"]);
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn a_call_to_the_world_is_cancelled() {
    let mut bench = app("function app.message(conn)
          print(pcall(veche.resolve, 'example.org'))
        end
        function app.close() print('close') end");
    bench.open(ANN);
    bench.text(ANN, "go");
    assert_eq!(bench.effect_lines().len(), 1);
    bench.close(ANN);
    let failed = format!("false\t{CLOSED}");
    assert_eq!(effect_lines(&mut bench), ["cancel call", &failed, "close"]);
}

#[test]
fn handlers_that_keep_waiting_are_stopped() {
    let mut bench = app("local steps = 0
        function app.message(conn)
          while true do pcall(veche.sleep, 1) steps = steps + 1 end
        end
        function app.close() print('close', steps) end");
    bench.open(ANN);
    bench.text(ANN, "go");
    bench.text(ANN, "again");
    bench.close(ANN);
    let effects = effect_lines(&mut bench);
    let stopped =
        "Error: a handler was stopped, because it kept waiting after its connection was closed";
    let stops = effects.iter().filter(|line| *line == stopped).count();
    assert_eq!(stops, 2, "{effects:?}");
    assert_eq!(effects.last().map(String::as_str), Some("close\t128"));
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn what_a_handler_has_spawned_goes_on() {
    let mut bench = app("function app.message(conn)
          local task = veche.spawn(function() veche.sleep(0.1) print('done') end)
          print(pcall(task.join, task))
        end");
    bench.open(ANN);
    bench.text(ANN, "go");
    bench.close(ANN);
    assert_eq!(
        effect_lines(&mut bench),
        [&format!("false\t{CLOSED}"), "done"]
    );
    assert_eq!(bench.vm.tasks(), 0);
}
