//! Tests of repeating timers: when they stop and when they continue.

mod support;

use support::{ANN, Bench, limits};
use veche_script::{ScriptLimits, ServiceState};

fn app(body: &str) -> String {
    format!(
        "local veche, app = require 'veche', {{}}
        function app.message(conn, data)
          {body}
        end
        return app"
    )
}

/// Returns the log of the script's turns without tracebacks.
fn lines(bench: &mut Bench) -> Vec<String> {
    let effects = bench.effect_lines().into_iter();
    effects
        .filter(|line| !line.starts_with("ready "))
        .map(|line| line.lines().next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_timer_goes_on_after_an_error() {
    let mut bench = Bench::new(&app("local calls = 0
          local timer = veche.timer.every(1, function(word)
            calls = calls + 1
            if calls == 1 then error('oh') end
            if calls == 2 then while true do end end
            if calls == 3 then veche.sleep(0.2) error({}) end
            print(word, calls)
          end, 'tick')
          veche.spawn(function() print('joined', pcall(timer.join, timer)) end)
          veche.sleep(6.5)
          print(timer:cancel(), timer:cancel())"));
    bench.open(ANN);
    bench.text(ANN, "go");
    let mut effects = Vec::new();
    for _ in 0..100 {
        bench.advance(100);
        effects.extend(lines(&mut bench));
    }
    let expected = [
        "Error: app.lua:6: oh",
        "Error: app.lua:7: the code ran too long without waiting and was stopped: see cpu_budget",
        "Error: an error object of type table",
        "tick\t4",
        "tick\t5",
        "tick\t6",
        "true\tfalse",
        "joined\tfalse\tcancelled",
    ];
    assert_eq!(effects, expected);
    bench.pass_time();
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn a_timer_outlives_a_memory_that_is_full() {
    let mut bench = Bench::with(
        &app("local keep = {}
          veche.timer.every(1, function()
            print(#keep)
            if #keep > 1000 then keep = {} return end
            while true do keep[#keep + 1] = ('x'):rep(1024) .. #keep end
          end)"),
        ScriptLimits {
            memory_bytes_max: 4 << 20,
            ..limits()
        },
    );
    bench.open(ANN);
    bench.text(ANN, "go");
    bench.advance(1000);
    let effects = lines(&mut bench);
    assert_eq!(effects[0], "0");
    assert!(effects[1].contains("not enough memory"), "{effects:?}");
    bench.pass_some_turns(1500);
    let effects = lines(&mut bench);
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert_ne!(effects[0], "0");
    bench.pass_some_turns(1000);
    assert_eq!(lines(&mut bench)[0], "0");
}

#[test]
fn a_timer_needs_no_more_room_than_it_had() {
    let mut bench = Bench::with(
        &app("veche.timer.every(1, function()
            for _ = 1, 50 do veche.spawn(veche.sleep, 1e6) end
            veche.sleep(0.5)
            print('tick')
            error('oh')
          end)"),
        ScriptLimits {
            tasks_max: 20,
            ..limits()
        },
    );
    bench.open(ANN);
    bench.text(ANN, "go");
    for _ in 0..3 {
        bench.advance(1000);
        bench.advance(500);
        let effects = lines(&mut bench);
        let ticks = effects.iter().filter(|line| *line == "tick").count();
        assert_eq!(ticks, 1, "{effects:?}");
        bench.advance(0);
    }
}

#[test]
fn a_due_time_that_rounding_puts_into_the_past_ends_no_timer() {
    let mut bench = Bench::new(&app(
        "veche.timer.every(0.002, function() veche.sleep(0.022) print('tick') end)",
    ));
    bench.advance(1);
    bench.open(ANN);
    bench.text(ANN, "go");
    for _ in 0..200 {
        bench.advance(1);
    }
    let effects = lines(&mut bench);
    assert!(effects.len() > 5, "{effects:?}");
    assert!(effects.iter().all(|line| line == "tick"), "{effects:?}");
}

#[test]
fn a_service_fails_with_its_timer_if_it_is_to() {
    let service = |every: &str| {
        let mut bench = Bench::service(&format!(
            "local veche = require 'veche'
            return {{ run = function()
              local timer = veche.timer.every({every}, error, 'oh')
              pcall(timer.join, timer)
            end }}"
        ));
        bench.advance(1000);
        let effects = lines(&mut bench);
        assert_eq!(effects, ["Error: oh"], "{every}");
        bench.advance(1000);
        bench.vm.service()
    };
    assert_eq!(service("1"), ServiceState::Runs);
    assert_eq!(
        service("{ seconds = 1, on_error = 'log' }"),
        ServiceState::Runs
    );
    assert_eq!(
        service("{ seconds = 1, on_error = 'fail' }"),
        ServiceState::Failed
    );
}

#[test]
fn a_timer_that_fails_for_good_is_a_task_that_has_failed() {
    let effects = Bench::run(
        "local timer = veche.timer.every({ seconds = 1, on_error = 'fail' }, error, 'oh')
        print(pcall(timer.join, timer))
        for _, bad in ipairs { 'x', {}, { seconds = 0 }, { seconds = 1, on_error = 1 }, { seconds = 1, errors = 1 } } do
          print(select(2, pcall(veche.timer.every, bad, print)))
        end",
    );
    assert_eq!(effects[0], "false\toh");
    assert!(
        effects[1..]
            .iter()
            .all(|line| line.contains("bad argument #1 to 'every'")),
        "{effects:#?}"
    );
    assert_eq!(effects.len(), 6);
}
