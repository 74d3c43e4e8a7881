//! Tests of the cost of one call of each function: the CPU time until a run that exceeds its budget is stopped, and the
//! memory used outside the VM. The functions are those of a live VM and the methods declared in the type definitions.
//!
//! A measurement above its limit is repeated, and the smallest value counts, because a thread that shares its core with
//! others is stopped late.

mod answered;
mod copies;
#[path = "../support/mod.rs"]
mod support;
mod worst;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use support::{BOB, Bench, Folder, limits};
use veche_script::{ConnectionId, MessageKind, ScriptLimits};
use worst::WORST;

const MIB: usize = 1 << 20;

/// The default CPU budget of a run of script code.
const BUDGET: Duration = Duration::from_millis(20);

/// Maximum CPU time of a whole run that repeats a call until it is stopped. The target is 45 ms, and at most 54 ms were
/// measured. The maximum is higher, because test builds have LuaJIT's assertions and little optimisation, and other
/// virtual machines may use the same core.
const RUN_MAX: Duration = Duration::from_millis(100);

/// Maximum CPU time of one call of a function that is not in [`WORST`], because nothing stops such a call.
const CALL_MAX: Duration = Duration::from_millis(30);

/// Memory limit of the VM.
const MEMORY_BYTES_MAX: usize = 64 * MIB;

/// Maximum memory that the process may use in addition to the VM's limit.
const EXCESS_BYTES_MAX: usize = 16 * MIB;

/// Memory allowed in addition to [`EXCESS_BYTES_MAX`] for functions whose messages wait outside the
/// VM until the handler waits.
const SENT_BYTES_MAX: usize = 64 * MIB;

/// The functions whose messages wait outside the VM.
const SENDING: &[&str] = &[
    "conn:send",
    "veche.http.patch",
    "veche.http.post",
    "veche.http.put",
    "veche.publish",
    "veche.push",
];

/// Number of measurements of one call. The smallest result counts.
const ATTEMPTS: usize = 8;

/// Functions that these tests can't call because they need another server. The second text names the values that the
/// function copies out of Lua, or a tested function that does the same work.
const NOT_CALLED: &[(&str, &str)] = &[
    ("answer:chunks", "nothing"),
    ("answer:close", "nothing"),
    ("answer:json", "as veche.json.decode"),
    ("answer:read", "nothing"),
    ("batch:delete", "as table:delete"),
    ("batch:insert", "as table:insert"),
    ("batch:update", "as table:update"),
    ("batch:upsert", "as table:upsert"),
    (
        "events:send",
        "as the writing of a response: json, find and gsub",
    ),
    ("events:subscribe", "as conn:subscribe"),
    ("events:unsubscribe", "as conn:unsubscribe"),
    ("events:wait", "nothing"),
    ("far_conn:close", "as conn:close"),
    ("far_conn:send", "as conn:send"),
    ("req:events", "a function"),
    ("subscription:close", "nothing"),
    ("subscription:messages", "nothing"),
    ("subscription:receive", "a number"),
    ("ws:close", "as conn:close"),
    ("ws:drain", "nothing"),
    ("ws:receive", "a number"),
    ("ws:send", "as conn:send"),
];

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the process's memory in bytes: the peak (`VmHWM:`) or the current value (`VmRSS:`).
fn resident(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.expect(field).parse::<usize>().expect("a number") << 10
}

/// The cost of a call: CPU time of its thread, and additional memory of the process.
struct Cost {
    cpu: Duration,
    bytes: usize,
}

/// Measures a call. `before` is the memory that is not counted.
fn measure(before: usize, call: impl FnOnce()) -> Cost {
    // Resets the peak of the resident memory.
    fs::write("/proc/self/clear_refs", "5").expect("a process may reset its peak");
    let began = cpu();
    call();
    Cost {
        cpu: cpu() - began,
        bytes: resident("VmHWM:").saturating_sub(before),
    }
}

fn limits_of_costs() -> ScriptLimits {
    ScriptLimits {
        memory_bytes_max: MEMORY_BYTES_MAX,
        cpu_budget: BUDGET,
        ..limits()
    }
}

/// Returns the names of all functions, such as `string.find` and `dict:get`.
fn functions() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = Bench::run(
        "local seen = {}
        local function tell(prefix, table)
          if seen[table] then return end
          seen[table] = true
          for name, value in pairs(table) do
            if type(value) == 'function' then print(prefix .. name) end
            if type(value) == 'table' and value ~= veche.config then tell(prefix .. name .. '.', value) end
          end
        end
        tell('veche.', veche)
        tell('', _G)",
    )
    .into_iter()
    .map(|name| name.trim_start_matches("_G.").to_owned())
    .collect();
    assert!(names.len() > 100, "{names:?}");
    let types = Path::new(env!("CARGO_MANIFEST_DIR")).join("types");
    for entry in fs::read_dir(types).expect("the folder of types") {
        let path = entry.expect("an entry").path();
        // The functions of `veche test` do not run in a server.
        if path.file_stem().is_some_and(|name| name == "test") {
            continue;
        }
        let text = fs::read_to_string(path).expect("a file");
        let declared = text
            .lines()
            .filter_map(|line| line.strip_prefix("function "));
        let methods = declared.filter_map(|line| line.split_once('('));
        let methods = methods.filter(|(name, _)| name.contains(':'));
        names.extend(methods.map(|(name, _)| name.to_owned()));
    }
    names
}

/// Returns the names in the first column of the guide's table. Some end with `*`.
fn rows() -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/lua.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let (_, section) = guide
        .split_once("### What functions may cost")
        .expect("the section");
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let columns = rows.filter_map(|row| row.split('|').nth(1));
    columns
        .flat_map(|column| column.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

fn is_of(name: &str, row: &str) -> bool {
    match row.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == row,
    }
}

#[test]
fn each_function_has_a_bound_in_the_guide() {
    let (functions, rows) = (functions(), rows());
    let missing: Vec<_> = functions
        .iter()
        .filter(|name| !rows.iter().any(|row| is_of(name, row)))
        .collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    let strange: Vec<_> = rows
        .iter()
        .filter(|row| !functions.iter().any(|name| is_of(name, row)))
        .collect();
    // These rows of the guide are operators, not functions.
    assert_eq!(strange, ["..", "#"], "rows without a function");
    for name in WORST.iter().flat_map(|(names, ..)| names.split(' ')) {
        assert!(functions.contains(name), "there is no {name}");
    }
    for (name, _) in NOT_CALLED {
        assert!(functions.contains(*name), "there is no {name}");
    }
}

/// Runs an ignored test of this file in its own process, which returns freed memory to the system immediately.
fn run_apart(test: &str) {
    let output = Command::new(std::env::current_exe().expect("this binary"))
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("MALLOC_MMAP_THRESHOLD_", "131072")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .expect("it runs");
    let ran = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    print!("{ran}");
    assert!(ran.contains("1 passed"), "{ran}{said}");
}

#[test]
fn overlong_values_are_rejected() {
    let mut bench = Bench::with(
        "local veche = require 'veche'
        local app = {}
        local json, base64 = veche.json, veche.base64
        local text = ('x'):rep(2 ^ 24)
        local function try(f, ...) print((select(2, pcall(f, ...)))) end
        function app.message(conn)
          local long = text .. 'x'
          try(json.decode, long)
          try(base64.encode, text)
          try(base64.decode, long)
          try(conn.send, conn, long)
          try(load, long)
          try(require, long)
        end
        return app",
        ScriptLimits {
            cpu_budget: Duration::from_secs(5),
            ..limits_of_costs()
        },
    );
    bench.open(BOB);
    bench.text(BOB, "go");
    let effects = bench.effect_lines();
    let expected = [
        "json.decode: the text is longer than 16 MiB",
        "base64.encode: the text would be longer than 16 MiB",
        "base64.decode: the text is longer than 16 MiB",
        "a message may have at most 16 MiB",
        "a source may have at most 128 KiB",
        "the name of a module may have at most 1024 bytes",
    ];
    assert_eq!(effects.len(), expected.len(), "{effects:?}");
    for (effect, expected) in effects.iter().zip(expected) {
        assert!(effect.contains(expected), "{effect:?}");
    }
}

#[test]
fn no_call_takes_long_whatever_it_is_given() {
    run_apart("call_everything");
}

#[test]
fn what_takes_long_is_stopped() {
    run_apart("repeat_the_worst");
}

#[test]
fn a_list_that_repeats_a_long_string_is_not_copied() {
    run_apart("copy_repeated_strings");
}

#[test]
#[ignore = "not a test: the process of the one above"]
fn copy_repeated_strings() {
    let problems = copies::problems();
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn large_replies_end_their_handler_within_its_limits() {
    run_apart("answer_with_much");
}

#[test]
#[ignore = "not a test: the process of the one above"]
fn answer_with_much() {
    let problems = answered::problems();
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn tasks_that_spawn_two_of_their_kind_stay_within_the_limits() {
    run_apart("spawn_forever");
}

#[test]
#[ignore = "not a test: the process of the one above"]
fn spawn_forever() {
    answered::spawn_forever();
}

/// Number of kinds of arguments in `calls.lua`.
const KINDS: usize = 15;

#[test]
#[ignore = "not a test: the process of the one above"]
fn call_everything() {
    let before = resident("VmRSS:");
    let folder = Folder::new();
    let mut bench = Bench::in_folder(folder, include_str!("calls.lua"), limits_of_costs());
    bench.open(BOB);
    for filling in [b'x', b'y'] {
        let text = String::from_utf8(vec![filling; 29 * MIB]).expect("ASCII");
        bench.text(BOB, &text);
    }
    let mut index = 1000;
    let mut problems = Vec::new();
    let functions = functions();
    for name in &functions {
        if NOT_CALLED.iter().any(|(known, _)| known == name) {
            continue;
        }
        let mut stopped = WORST.iter().flat_map(|(names, ..)| names.split(' '));
        let cpu_max = match stopped.any(|known| known == name) {
            true => RUN_MAX,
            false => CALL_MAX,
        };
        let mut most = Cost {
            cpu: Duration::ZERO,
            bytes: 0,
        };
        for kind in 1..=KINDS {
            let (mut least, mut bytes) = (Duration::MAX, 0);
            for attempt in 0..ATTEMPTS {
                index += 1;
                let id = ConnectionId {
                    index,
                    generation: 1,
                };
                bench.open(id);
                let message = format!("{kind} {name}");
                let Bench { vm, now, .. } = &mut bench;
                let cost = measure(before, || {
                    vm.message(id, MessageKind::Text, message.as_bytes(), *now);
                });
                vm.gone(id, false, *now);
                let effects = answered::fail_calls(&mut bench);
                let lost = effects.iter().find(|line| line.contains("there is no "));
                assert_eq!(lost, None, "{name}");
                least = least.min(cost.cpu);
                bytes = bytes.max(cost.bytes);
                if least <= cpu_max {
                    break;
                }
                if attempt + 1 == ATTEMPTS {
                    problems.push(format!("{name}, arguments {kind}: {least:.1?}"));
                }
            }
            most.cpu = most.cpu.max(least);
            most.bytes = most.bytes.max(bytes);
        }
        let is_sending = SENDING.contains(&name.as_str());
        let bytes_max = match is_sending {
            true => MEMORY_BYTES_MAX + EXCESS_BYTES_MAX + SENT_BYTES_MAX,
            false => MEMORY_BYTES_MAX + EXCESS_BYTES_MAX,
        };
        let Cost { cpu, bytes } = most;
        println!("{name}: {cpu:.1?}, {} MiB", bytes >> 20);
        if bytes > bytes_max {
            problems.push(format!("{name}: {} MiB", bytes >> 20));
        }
        assert!(!bench.vm.is_broken(), "{name}");
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
#[ignore = "not a test: the process of the one above"]
fn repeat_the_worst() {
    // The stack is as large as that of a worker.
    let thread = std::thread::Builder::new().stack_size(16 * MIB);
    let run = thread.spawn(|| {
        let problems: Vec<String> = WORST.iter().filter_map(repeat).collect();
        assert!(problems.is_empty(), "{problems:#?}");
    });
    run.expect("a thread").join().expect("no panic");
}

/// Repeats a call until its run is stopped, several times. Returns a description of the problem, if there is one.
fn repeat((names, setup, call): &worst::Worst) -> Option<String> {
    let before = resident("VmRSS:");
    let mut bench = Bench::with(
        &format!(
            "local veche = require 'veche'
            local app = {{}}
            {setup}
            function app.message(conn, data)
              if data ~= 'go' then return conn:send(data) end
              while true do
                local ok, why = pcall(function() {call} end)
                if not ok and #tostring(why) < 200 and why:find('attempt to', 1, true) then print(why) return end
              end
            end
            return app"
        ),
        limits_of_costs(),
    );
    bench.open(BOB);
    let mut least = Cost {
        cpu: Duration::MAX,
        bytes: 0,
    };
    for attempt in 0..ATTEMPTS as u32 {
        let id = ConnectionId {
            index: 1000 + attempt,
            generation: 1,
        };
        bench.open(id);
        let Bench { vm, now, .. } = &mut bench;
        let cost = measure(before, || {
            vm.message(id, MessageKind::Text, b"go", *now);
        });
        least.cpu = least.cpu.min(cost.cpu);
        least.bytes = least.bytes.max(cost.bytes);
        let effects = bench.effect_lines();
        let slip = effects.iter().find(|line| line.contains("attempt to"));
        assert_eq!(slip, None, "{names} {call}");
        bench.text(BOB, "hello");
        // Only the first line is compared, because handlers that are suspended in `veche.publish` may continue to publish.
        assert_eq!(
            bench.next_effect_lines()[0],
            "send bob text hello",
            "{names} {call}"
        );
        if least.cpu <= RUN_MAX {
            break;
        }
    }
    let Cost { cpu, bytes } = least;
    let bytes_max = match SENDING.iter().any(|name| names.contains(name)) {
        true => MEMORY_BYTES_MAX + EXCESS_BYTES_MAX + SENT_BYTES_MAX,
        false => MEMORY_BYTES_MAX + EXCESS_BYTES_MAX,
    };
    let figures = format!("{names} {call}: {cpu:.1?}, {} MiB", bytes >> 20);
    println!("{figures}");
    let is_good = cpu <= RUN_MAX && bytes <= bytes_max && !bench.vm.is_broken();
    (!is_good).then_some(figures)
}
