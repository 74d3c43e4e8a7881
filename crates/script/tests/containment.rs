//! Tests of isolation: a faulty script can't block its worker, use up all memory, leak data between connections or
//! escape from its VM.

mod support;

use std::time::Duration;

use support::{ANN, BOB, Bench, limits};
use veche_script::{AppWorld, HandlerProgress, MessageKind, ScriptLimits};

fn small_budget() -> ScriptLimits {
    ScriptLimits {
        cpu_budget: Duration::from_millis(20),
        ..limits()
    }
}

#[test]
fn a_runaway_loop_ends_alone() {
    for (what, body) in [
        ("a loop", "while true do end"),
        (
            "a compiled loop",
            "local x = 0 for i = 1, 1e15 do x = x + i % 3 end",
        ),
        (
            "a compiled loop with calls",
            "local t = {} while true do t[#t % 100 + 1] = math.sin(#t) end",
        ),
        (
            "one in pcall",
            "while true do pcall(function() while true do end end) end",
        ),
        (
            "one in xpcall with a handler that loops",
            "xpcall(function() while true do end end, function() while true do end end)",
        ),
        (
            "one in a coroutine",
            "coroutine.wrap(function() while true do end end)()",
        ),
        (
            "recursion in a coroutine",
            "local function f() return f() end f()",
        ),
        (
            "one in a metamethod",
            "local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
        ),
        (
            "one that comes back",
            "for i = 1, 1e9 do pcall(error, 'x') end",
        ),
        (
            "slow functions",
            "local t = {} for i = 1, 200000 do t[i] = i end while true do table.concat(t) end",
        ),
        (
            "sort",
            "local t = {} for i = 1, 1000 do t[i] = i % 7 end while true do table.sort(t, function(a, b) return a < b end) end",
        ),
    ] {
        let mut bench = Bench::with(
            &format!(
                "local app = {{}}
            function app.message(conn, data)
              if data == 'go' then {body} end
              conn:send('alive')
            end
            return app"
            ),
            small_budget(),
        );
        bench.open(ANN);
        bench.open(BOB);
        assert_eq!(bench.text(ANN, "go"), HandlerProgress::Done, "{what}");
        let effects = bench.effect_lines();
        assert!(
            effects.len() == 2
                && effects[0].contains("ran too long")
                && effects[0].contains("stack traceback"),
            "{what}: {effects:?}"
        );
        assert_eq!(effects[1], "failed ann", "{what}");
        bench.text(BOB, "hello");
        assert_eq!(bench.effect_lines(), ["send bob text alive"], "{what}");
    }
}

#[test]
fn a_hundred_thousand_coroutines_sleep_and_wake() {
    let mut bench = Bench::with(
        "local veche = require 'veche'
        local app, woken = {}, 0
        function app.message(conn, data)
          for i = 1, 1000 do veche.spawn(function() veche.sleep(60) woken = woken + 1 end) end
        end
        function app.close() print(woken) end
        return app",
        ScriptLimits {
            memory_bytes_max: 256 << 20,
            ..small_budget()
        },
    );
    bench.open(ANN);
    let before = bench.vm.memory_bytes();
    for _ in 0..100 {
        bench.text(ANN, "go");
        while bench.vm.deadline_ms() <= bench.now.mono_ms {
            bench.advance(1);
        }
    }
    assert_eq!(bench.vm.tasks(), 100_000);
    let each = (bench.vm.memory_bytes() - before) / 100_000;
    assert!(each <= 1536, "{each} B each");
    bench.advance(60_000);
    while bench.vm.tasks() > 0 {
        bench.advance(1);
    }
    bench.close(ANN);
    // The pauses of the garbage collector don't count towards the CPU budget.
    assert_eq!(bench.effect_lines(), ["100000"]);
}

#[test]
fn many_handlers_within_their_budgets_share_turns() {
    let mut bench = Bench::in_world(
        &AppWorld::default(),
        "local app = {}
        function app.message(conn, data)
          local n = 0
          while n < 1e6 do n = n + #tostring(n) end
          conn:send(data)
        end
        return app",
        ScriptLimits {
            cpu_budget: Duration::from_secs(5),
            ..limits()
        },
    );
    bench.open(ANN);
    bench.open(BOB);
    // The time has not changed since the previous turn, so this call continues that turn.
    bench.vm.turn(bench.now);
    let mut waits = 0;
    for i in 0..200 {
        let id = if i % 2 == 0 { ANN } else { BOB };
        let progress = bench
            .vm
            .message(id, MessageKind::Text, i.to_string().as_bytes(), bench.now);
        waits += usize::from(progress == HandlerProgress::Waits);
    }
    let effects = bench.effect_lines().len();
    assert!(
        waits > 0 && effects > 0 && effects < 200,
        "{waits} {effects}"
    );
    // The messages that this turn has not handled are handled in later turns, in order.
    let mut sent = 0;
    for _ in 0..1000 {
        bench.advance(1);
        sent += bench
            .effect_lines()
            .iter()
            .filter(|line| line.starts_with("send"))
            .count();
    }
    assert_eq!(effects + sent, 200);
    assert_eq!(bench.vm.tasks(), 0);
}

#[test]
fn a_long_run_within_the_budget_is_not_ended() {
    let mut bench = Bench::with(
        "local veche = require 'veche'
        local app = {}
        function app.start()
          for i = 1, 50 do local x = 0 for j = 1, 100000 do x = x + j end veche.sleep(0) end
          print('whole')
        end
        return app",
        ScriptLimits {
            cpu_budget: Duration::from_millis(100),
            ..limits()
        },
    );
    bench.pass_time();
    assert_eq!(bench.effect_lines(), ["whole"]);
}

#[test]
fn what_nests_in_c_is_an_error_in_time() {
    for body in [
        "local function f() return (('x'):gsub('x', f)) end f()",
        "local c, r = coroutine.create, coroutine.resume local function f() assert(r(c(f))) end f()",
        "local function f() return coroutine.wrap(f)() end f()",
        "local mt = {} mt.__tostring = function() print(setmetatable({ print }, mt)) return 'x' end print(setmetatable({ print }, mt))",
        "local function f() table.sort({ 2, 1 }, function(a, b) f() return a < b end) end f()",
        "local function f() return load(function() f() return nil end) end f()",
    ] {
        // The stack is as large as that of a worker, and the time is long enough to use it up.
        let body = body.to_owned();
        let thread = std::thread::Builder::new().stack_size(16 << 20);
        let run = thread.spawn(move || {
            let mut bench = Bench::with(
                &format!(
                    "local app = {{}}
                    function app.message(conn, data) {body} end
                    return app"
                ),
                ScriptLimits {
                    cpu_budget: Duration::from_secs(2),
                    ..limits()
                },
            );
            bench.open(ANN);
            bench.text(ANN, "go");
            bench.advance(1);
            let effects = bench.effect_lines();
            assert!(!effects.is_empty() && effects.len() < 100_000, "{body}");
        });
        run.expect("a thread").join().expect("no panic");
    }
}

#[test]
fn every_handler_is_limited() {
    for body in [
        "error(setmetatable({}, { __tostring = function() while true do end end }))",
        "local t = require('veche').spawn(function() error('x') end)
         pcall(function() getmetatable(t).__newindex = function() while true do end end end)",
        "local t = { 1 } for i = 1, 100 do t = { t, t } end require('veche').json.encode(t)",
        "local t = { 1 } for i = 1, 100 do t = { t, t } end print(t)",
    ] {
        let mut bench = Bench::with(
            &format!(
                "local app = {{}}
                function app.message(conn, data) {body} end
                return app"
            ),
            small_budget(),
        );
        bench.open(ANN);
        bench.text(ANN, "go");
        bench.advance(1);
        assert!(!bench.effect_lines().is_empty(), "{body}");
    }
    // The table has no handlers, and its metatable is not used to find any.
    Bench::new("return setmetatable({}, { __index = function() while true do end end })");
}

#[test]
fn what_a_script_sends_in_one_run_has_a_limit() {
    let mut bench = Bench::with(
        "local app = {}
        function app.message(conn, data)
          local big = ('x'):rep(1000000)
          while true do conn:send(big) end
        end
        return app",
        ScriptLimits {
            cpu_budget: Duration::from_secs(5),
            ..limits()
        },
    );
    bench.open(ANN);
    bench.text(ANN, "go");
    let effects = bench.effect_lines();
    assert!(
        effects.len() < 100 && effects.iter().any(|line| line.contains("too much")),
        "{}",
        effects.len()
    );
}

#[test]
fn a_pathological_pattern_is_an_error_in_time() {
    for body in [
        "return ('a'):rep(30000):find(('a*'):rep(20) .. 'b')",
        "return ('a'):rep(30000):gsub(('a-'):rep(20) .. 'b', '')",
        "for x in ('a'):rep(30000):gmatch('.-.-.-.-b') do end",
    ] {
        let mut bench = Bench::new(&format!(
            "local app = {{}}
            function app.message(conn, data) {body} end
            return app"
        ));
        bench.open(ANN);
        bench.text(ANN, "go");
        let effects = bench.effect_lines();
        assert!(
            effects[0].contains("pattern too costly"),
            "{body}: {effects:?}"
        );
    }
}

/// Errors of Rust functions are objects with destructors. The garbage collector must handle any number of them.
#[test]
fn errors_without_end_are_collected() {
    let mut bench = Bench::with(
        "local veche = require 'veche'
        local app = {}
        function app.message(conn, data)
          for i = 1, 20000 do
            pcall(veche.json.decode, '{')
            pcall(veche.publish, '')
            pcall(conn.send, conn, nil)
          end
          conn:send('done')
        end
        return app",
        ScriptLimits {
            cpu_budget: Duration::from_secs(20),
            memory_bytes_max: 8 << 20,
            ..limits()
        },
    );
    bench.open(ANN);
    for _ in 0..3 {
        bench.text(ANN, "go");
        bench.advance(1);
        assert_eq!(bench.effect_lines(), ["send ann text done"]);
    }
}

#[test]
fn globals_do_not_leak() {
    let mut bench = Bench::new(
        "declared = 1
        local app = {}
        function app.message(conn, data)
          declared = declared + 1
          print(declared, pcall(function() leak = data end))
        end
        return app",
    );
    bench.open(ANN);
    bench.text(ANN, "x");
    let effects = bench.effect_lines();
    assert!(
        effects[0].starts_with("2\tfalse\t") && effects[0].contains("undeclared global 'leak'"),
        "{effects:?}"
    );
}

#[test]
fn there_is_no_way_out() {
    for what in [
        "io",
        "debug.getinfo",
        "package",
        "ffi",
        "jit",
        "os.execute",
        "os.exit",
        "os.remove",
        "dofile",
        "loadfile",
        "newproxy",
        "string.dump",
        "getmetatable(_G)",
        "getmetatable('')",
    ] {
        let effects = Bench::run(&format!("print(type({what}))"));
        assert!(
            effects == ["nil"] || effects == ["boolean"],
            "{what}: {effects:?}"
        );
    }
    let effects = Bench::run(
        "print(pcall(load(string.char(27, 76, 74))))  print(load('return 1 + 1')(), pcall(require, 'ffi'))",
    );
    assert!(effects[0].starts_with("false"), "{effects:?}");
    assert!(effects[1].starts_with("2\tfalse"), "{effects:?}");
    let effects = Bench::run(
        "local env = { x = 7 }
        print(load('return x', 'c', 't', env)(), load('return x', 'c', nil, env)(), load('return x', 'c', env)())
        print(pcall(load, 'return 1', 'c', 'b'))
        print(pcall(load, 'return 1', 'c', 'text', env))",
    );
    assert_eq!(effects[0], "7\t7\t7");
    assert!(
        effects[1].contains("bytecode can't be loaded"),
        "{effects:?}"
    );
    assert!(effects[2].contains("\"t\" expected"), "{effects:?}");
}

#[test]
fn an_error_is_its_handlers_alone_and_has_a_traceback() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        local function inner(x) error(x) end
        function app.message(conn, data)
          if data == 'wait' then veche.sleep(1) end
          if data == 'table' then error({}) end
          inner(data)
        end
        function app.close(conn) print('closed') error('in close') end
        return app",
    );
    bench.open(ANN);
    bench.text(ANN, "boom");
    let effects = bench.effect_lines();
    assert!(
        effects[0].contains("app.lua:3: boom") && effects[0].contains("'inner'"),
        "{effects:?}"
    );
    assert_eq!(effects[1], "failed ann");
    bench.close(ANN);
    assert!(bench.effect_lines()[0] == "closed");
    bench.open(BOB);
    assert_eq!(bench.text(BOB, "wait"), HandlerProgress::Waits);
    bench.advance(1000);
    let effects = bench.effect_lines();
    assert!(effects[0].contains("app.lua:3: wait"), "{effects:?}");
    assert_eq!(effects[1..], ["failed bob", "ready bob"]);
    bench.text(BOB, "table");
    assert!(bench.effect_lines()[0].contains("table"));
}

#[test]
fn a_handler_of_xpcall_finds_the_traceback() {
    let effects = Bench::run(
        "local function inner() error('oh') end
        print(select(2, xpcall(function(x) inner() end, debug.traceback, 1)))",
    );
    assert!(
        effects[0].starts_with("app.lua:4: oh\nstack traceback:") && effects[0].contains("'inner'"),
        "{effects:?}"
    );
}

#[test]
fn a_traceback_shows_where_it_is_asked_for() {
    let effects = Bench::run(
        "local function show(...) return debug.traceback(...) end
        local function outer() local text = show('here') return text end
        print(outer())
        -- Within a handler it is the error's, also if that waits; behind it its own again.
        local function inner() error('oh') end
        local function handler(e)
          veche.sleep(0)
          return debug.traceback(e)
        end
        print(select(2, xpcall(function() inner() end, handler)))
        veche.spawn(function() print(debug.traceback('spawned')) end)
        print(select(2, xpcall(function() inner() end, function(e) veche.sleep(0.1) return debug.traceback(e) end)))
        print(debug.traceback('after'))
        print(xpcall(inner, function(e) error('worse') end))
        print(debug.traceback('after a bad handler'))
        local co = coroutine.create(function() local x = coroutine.yield() return x end)
        coroutine.resume(co)
        print(debug.traceback(co), debug.traceback(co, 'of it'))
        print(debug.traceback(nil), debug.traceback({}) ~= nil, debug.traceback('deep', 1e9), debug.traceback('odd', -5))
        print(pcall(debug.traceback, 'x', {}), pcall(debug.traceback, coroutine.running()))",
    );
    let has = |line: usize, words: &[&str]| {
        for word in words {
            assert!(effects[line].contains(word), "{word}: {}", effects[line]);
        }
    };
    has(
        0,
        &[
            "here\nstack traceback:",
            "app.lua:5:",
            "'outer'",
            "app.lua:6",
        ],
    );
    has(1, &["app.lua:8: oh\nstack traceback:", "'inner'"]);
    has(2, &["spawned\nstack traceback:", "app.lua:14"]);
    assert!(!effects[2].contains("inner"), "{}", effects[2]);
    has(3, &["'inner'"]);
    has(4, &["after\nstack traceback:", "app.lua:16"]);
    has(5, &["false", "worse"]);
    has(6, &["app.lua:18"]);
    assert!(!effects[6].contains("inner"), "{}", effects[6]);
    has(7, &["app.lua:19", "of it\nstack traceback:"]);
    has(8, &["stack traceback:", "deep"]);
}

/// LuaJIT gives the line of a failed instruction only in the error message, so Veche adds the line to the traceback.
#[test]
fn a_traceback_has_the_line_of_an_error() {
    for (body, line) in [
        ("local t = nil\nlocal x = 1\nreturn t.x", 5),
        ("local t = nil\nreturn 1 + t", 4),
        ("local t = nil\nt()\nreturn 1", 4),
        ("return #nil", 3),
        ("local s = 'x'\n\nlocal y = s .. {}\nreturn y", 5),
        ("for i = 1, 'x' do end", 3),
        ("local t = {}\nt[nil] = 1\nreturn t", 4),
        ("string.rep()\nreturn 1", 3),
        ("error('x')", 3),
        (
            "local function f()\nlocal t\nt.x = 1\nend\nf()\nreturn 1",
            5,
        ),
    ] {
        let mut bench = Bench::new(&format!(
            "local app = {{}}\nfunction app.message(conn, data)\n{body}\nend\nreturn app"
        ));
        bench.open(ANN);
        bench.text(ANN, "go");
        let effects = bench.effect_lines();
        let place = format!("app.lua:{line}:");
        let (message, trace) = effects[0].split_once("stack traceback:").expect("one");
        assert!(message.contains(&place), "{body}: {}", effects[0]);
        assert!(trace.contains(&place), "{body}: {}", effects[0]);
    }
}

#[test]
fn bad_arguments_are_named() {
    let effects = Bench::run(
        "local function bad(f, ...) print(select(2, pcall(f, ...))) end
        bad(veche.spawn) bad(veche.spawn, 5) bad(veche.sleep, -1) bad(veche.sleep, 1e300) bad(veche.sleep, {})
        bad(veche.timer.after, 'x', print) bad(veche.timer.after, 1) bad(veche.timer.every, 0, print)
        bad(coroutine.yield)",
    );
    for line in &effects[..8] {
        assert!(line.contains("bad argument"), "{effects:#?}");
    }
}

#[test]
fn invalid_connections_are_an_error() {
    let mut bench = Bench::new(
        "local app = {}
        function app.open(conn)
          local send, close = conn.send, conn.close
          for _, bad in ipairs { 5, 'x', {}, print, io or false, setmetatable({}, { __index = conn }) } do
            print(select(2, pcall(send, bad, 'x')))
          end
          print(select(2, pcall(send)), select(2, pcall(conn.send, conn)))
          print(select(2, pcall(conn.send, conn, {})))
          print(select(2, pcall(conn.send, conn, 'x', 'y')))
          print(select(2, pcall(conn.send, conn, '\\255')))
          print(select(2, pcall(conn.close, conn, 1005)), select(2, pcall(conn.close, conn, 1000.5)), select(2, pcall(conn.close, conn, 1000, ('x'):rep(124))))
          print(getmetatable(conn))
        end
        return app",
    );
    bench.open(ANN);
    let effects = bench.effect_lines();
    assert_eq!(effects.len(), 12, "{effects:#?}");
    assert!(
        effects[..11]
            .iter()
            .all(|line| line.contains("bad argument")),
        "{effects:#?}"
    );
    assert_eq!(effects[11], "false");
}
