//! Tests of scripts that use up their memory in every way and from every place, repeatedly: each attempt must end with
//! an error and leave the VM usable for the next script.
//!
//! What LuaJIT does when an allocation is refused depends on the instruction. So the scripts allocate pieces of
//! decreasing size: when a piece does not fit, memory is left for smaller ones. Run these tests with `--profile bench`
//! too, because that profile lays out stack frames differently.

mod support;

use std::process::Command;
use std::time::Duration;

use support::{ANN, BOB, Bench, limits};
use veche_script::ScriptLimits;

/// Functions that fill the memory. Each takes a function that retains the allocated value, and the size of a piece.
const FILLERS: &[(&str, &str)] = &[
    ("strings", "keep[#keep + 1] = ('x'):rep(size - 8) .. #keep"),
    ("one string", "keep[1] = (keep[1] or '') .. ('y'):rep(size)"),
    (
        "tables",
        "local t = {} for i = 1, size / 8 do t[i] = i end keep[#keep + 1] = t",
    ),
    (
        "hashes",
        "local t = {} for i = 1, size / 40 do t['k' .. i .. #keep] = i end keep[#keep + 1] = t",
    ),
    (
        "closures",
        "for i = 1, size / 40 + 1 do local up = i keep[#keep + 1] = function() up = up + 1 return up end end",
    ),
    (
        "coroutines",
        "for i = 1, size / 1024 + 1 do keep[#keep + 1] = coroutine.wrap(function() coroutine.yield(i) end) keep[#keep]() end",
    ),
    (
        "concatenations",
        "local t = {} for i = 1, 16 do t[i] = ('z'):rep(size / 16) end keep[#keep + 1] = table.concat(t, ',')",
    ),
    (
        "gsub",
        "keep[#keep + 1] = (('.'):rep(size / 4):gsub('.', 'abcd')) .. #keep",
    ),
    (
        "gsub with a function",
        "keep[#keep + 1] = (('.'):rep(size / 64):gsub('.', function(c) return ('q'):rep(64) end)) .. #keep",
    ),
    (
        "formats",
        "keep[#keep + 1] = ('%s%d'):format(('f'):rep(size), #keep)",
    ),
    (
        "decoded JSON",
        "keep[#keep + 1] = veche.json.decode('[' .. ('{\"a\":[1,2]},'):rep(size / 64) .. '1]')",
    ),
    (
        "encoded JSON",
        "local t = {} for i = 1, size / 8 do t[i] = i end keep[#keep + 1] = veche.json.encode(t)",
    ),
    (
        "attributes",
        "conn.attributes['a' .. #keep % 8] = ('a'):rep(size) keep[#keep + 1] = conn.attributes['a' .. #keep % 8] .. #keep",
    ),
    (
        "errors",
        "for i = 1, size / 200 + 1 do local _, e = pcall(veche.json.decode, '{') keep[#keep + 1] = e .. i .. #keep end",
    ),
    (
        "deep recursion",
        "local function down(n) if n > 0 then return 1 + down(n - 1) end return 0 end keep[#keep + 1] = down(math.min(size, 7000)) .. ('d'):rep(size)",
    ),
    (
        "results",
        "keep[#keep + 1] = { unpack(keep, math.max(1, #keep - 5000)) } keep[#keep + 1] = ('u'):rep(size)",
    ),
    (
        "source",
        "keep[#keep + 1] = load('return {' .. ('1,'):rep(size / 4) .. '}') keep[#keep + 1] = keep[#keep]()",
    ),
    (
        "digests",
        "keep[#keep + 1] = veche.base64.encode(('b'):rep(size)) .. #keep",
    ),
    (
        "upper case",
        "keep[#keep + 1] = ('%x'):rep(size / 2):upper():reverse() .. #keep",
    ),
    (
        "tasks",
        "for i = 1, size / 1024 + 1 do veche.spawn(function() local mine = ('t'):rep(size) veche.sleep(0.001) return mine end) end",
    ),
];

/// Names and code of scripts that fill the memory, each from another place, such as a coroutine or a callback.
/// `fill(keep)` allocates pieces of decreasing size until an allocation fails.
const PLACES: &[(&str, &str)] = &[
    ("the handler", "fill {}"),
    (
        "pcall",
        "local keep = {} for i = 1, 20 do pcall(fill, keep) if i % 5 == 0 then keep = {} end end",
    ),
    (
        "a coroutine",
        "for i = 1, 20 do coroutine.wrap(function() pcall(fill, {}) fill {} end)() end",
    ),
    (
        "nested coroutines",
        "local function deep(n) coroutine.wrap(function() if n > 0 then pcall(deep, n - 1) end fill {} end)() end deep(5)",
    ),
    (
        "metamethods",
        "local mt = {} mt.__index = function(t, k) fill {} return k end mt.__newindex = function() fill {} end mt.__concat = function() fill {} return '' end mt.__call = function() fill {} end mt.__lt = function() fill {} return true end local t = setmetatable({}, mt) for i = 1, 5 do pcall(function() return t.x end) pcall(function() t.x = 1 end) pcall(function() return t .. 'x' end) pcall(t) pcall(function() return t < t end) end",
    ),
    (
        "xpcall and its handler",
        "for i = 1, 10 do xpcall(fill, function(e) fill {} return e end, {}) end",
    ),
    (
        "sort",
        "for i = 1, 5 do pcall(table.sort, { 3, 1, 2 }, function(a, b) fill {} return a < b end) end",
    ),
    (
        "gsub's callback",
        "for i = 1, 5 do pcall(string.gsub, 'abc', '.', function(c) fill {} end) end",
    ),
    (
        "an iterator",
        "for i = 1, 5 do pcall(function() for _ in function() fill {} return 1 end do end end) end",
    ),
    (
        "a task",
        "for i = 1, 3 do veche.spawn(function() pcall(fill, {}) veche.sleep(0.001) fill {} end) end",
    ),
    (
        "tostring",
        "local t = setmetatable({}, { __tostring = function() fill {} return 'x' end }) for i = 1, 5 do pcall(tostring, t) pcall(print, t) end",
    ),
];

fn script(filler: &str, place: &str) -> String {
    format!(
        "local veche = require 'veche'
        local app = {{}}
        function app.message(conn, data)
          if data ~= 'go' then return conn:send(data) end
          local function fill(keep)
            local size = 1048576
            while size >= 16 do
              local ok = pcall(function() for i = 1, 64 do {filler} end end)
              size = size / 2
            end
            while true do keep[#keep + 1] = {{ #keep }} end
          end
          {place}
        end
        return app"
    )
}

/// The message of LuaJIT's assertion if memory runs out while a trace is being stitched to another one. This is a bug
/// of LuaJIT (issue 1502), fixed after the release that we build. It can occur here at any time, but rarely.
const KNOWN_FAULT: &str = "unbalanced stack after hot instruction";

/// The script runs in a separate process, because [`KNOWN_FAULT`] would end the process.
#[test]
fn memory_that_is_filled_to_the_brim_ends_a_run_alone() {
    for _ in 0..5 {
        let output = Command::new(std::env::current_exe().expect("this binary"))
            .args(["fill_to_the_brim", "--exact", "--ignored", "--nocapture"])
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains(KNOWN_FAULT) {
            assert!(output.status.success(), "{said}");
            let ran = String::from_utf8_lossy(&output.stdout);
            assert!(ran.contains("1 passed"), "{ran}");
            return;
        }
        eprintln!("known, and tried again: {said}");
    }
    panic!("the known fault is not seldom");
}

#[test]
#[ignore = "not a test: the process of the one above"]
fn fill_to_the_brim() {
    let (first, second) = FILLERS.split_at(FILLERS.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| fill_with(first));
        scope.spawn(|| fill_with(second));
    });
}

fn fill_with(fillers: &[(&str, &str)]) {
    for (what, filler) in fillers {
        for (from, place) in PLACES {
            let mut bench = Bench::with(
                &script(filler, place),
                ScriptLimits {
                    memory_bytes_max: 3 << 20,
                    cpu_budget: Duration::from_millis(100),
                    ..limits()
                },
            );
            bench.open(ANN);
            bench.open(BOB);
            for _ in 0..3 {
                bench.text(ANN, "go");
                bench.advance(1);
                bench.advance(1);
                bench.effect_lines();
            }
            // When all runs in progress have ended, the VM has memory for other runs.
            for _ in 0..2000 {
                bench.advance(10);
                bench.effect_lines();
                if bench.vm.tasks() == 0 && bench.vm.deadline_ms() > bench.now.mono_ms {
                    break;
                }
            }
            assert_eq!(bench.vm.tasks(), 0, "{what} in {from}");
            bench.text(BOB, "hello");
            // The VM may have to wait for a garbage collection.
            let effects = bench.next_effect_lines();
            assert_eq!(
                effects[0], "send bob text hello",
                "{what} in {from}: {effects:?}"
            );
            let bytes = bench.vm.memory_bytes();
            assert!(bytes < 8 << 20, "{what} in {from}: {bytes} B");
        }
    }
}

/// Returns the peak memory of the process.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.expect("VmHWM").parse().expect("a number")
}

/// The log is written in a separate process, so that no other test raises the measured memory peak.
#[test]
fn a_line_of_the_log_takes_no_more_memory_than_it_shows() {
    let output = Command::new(std::env::current_exe().expect("this binary"))
        .args(["log_long_strings", "--exact", "--ignored", "--nocapture"])
        .output()
        .expect("it runs");
    let ran = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(ran.contains("1 passed"), "{ran}{said}");
}

#[test]
fn a_handler_logs_a_bounded_amount_before_it_waits() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.message(conn, data)
          for i = 1, 200 do print(('x'):rep(16000)) end
          veche.sleep(0.01)
          for i = 1, 20000 do print('short') end
          conn:send('done')
        end
        return app",
    );
    bench.open(ANN);
    bench.effect_lines();
    bench.text(ANN, "go");
    let long = bench.effect_lines();
    assert!((40..=65).contains(&long.len()), "{} lines", long.len());
    let short = bench.next_effect_lines();
    assert!(short.iter().any(|line| line.contains("done")));
    let lines = short.iter().filter(|line| line.contains("short")).count();
    assert!((1000..=8192).contains(&lines), "{lines} lines");
}

#[test]
#[ignore = "not a test: the process of the one above"]
fn log_long_strings() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.message(conn, data)
          local long = ('\u{e4}'):rep(524288)
          local all = {}
          for i = 1, 200 do all[i] = long end
          print(unpack(all))
          veche.log.warn('short', long)
          print('\\255', 1, true)
        end
        return app",
    );
    bench.open(ANN);
    bench.effect_lines();
    let before_kib = peak_kib();
    bench.text(ANN, "go");
    let effects = bench.next_effect_lines();
    let grown_kib = peak_kib() - before_kib;
    assert!(grown_kib < 32 << 10, "{grown_kib} KiB for three lines");
    assert_eq!(effects.len(), 3, "{effects:?}");
    // A truncated line does not end within a character.
    let shown = effects[0].matches('\u{e4}').count();
    assert_eq!(shown, (16 << 10) / 2, "{}", effects[0].len());
    assert!(effects[0].ends_with('\u{2026}'));
    assert!(effects[1].contains("short\t\u{e4}") && effects[1].ends_with('\u{2026}'));
    assert!(effects[2].ends_with("\u{fffd}\t1\ttrue"), "{}", effects[2]);
}
