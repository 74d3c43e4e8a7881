//! Tests of the memory limits of scripts: the limit of a VM and the limit of the process.

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use support::{ANN, BOB, Bench, limits, replies, token_of};
use veche_calls::CallReply;
use veche_runtime::Host;
use veche_script::{AppWorld, HandlerProgress, MessageKind, ScriptLimits};

#[test]
fn memory_has_a_cap() {
    for body in [
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(1e9)",
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "local t = {} for i = 1, 1e9 do t[i] = coroutine.create(function() end) end",
    ] {
        let mut bench = Bench::with(
            &format!(
                "local app = {{}}
            function app.message(conn, data)
              if data == 'go' then {body} end
              conn:send(data)
            end
            return app"
            ),
            ScriptLimits {
                cpu_budget: Duration::from_secs(20),
                ..limits()
            },
        );
        bench.open(ANN);
        bench.open(BOB);
        bench.text(ANN, "go");
        let effects = bench.effect_lines();
        assert!(
            effects[0].contains("not enough memory") || effects[0].contains("string too large"),
            "{body}: {effects:?}"
        );
        // After the error, the VM has memory again, even for large messages.
        let large = "y".repeat(1 << 20);
        for _ in 0..100 {
            bench.text(BOB, &large);
            // The VM may have to wait for a garbage collection.
            let effects = bench.next_effect_lines();
            assert!(
                effects[0].starts_with("send bob"),
                "{body}: {:.100}",
                effects[0]
            );
        }
        assert!(bench.vm.memory_bytes() < 32 << 20);
    }
}

/// A single large result is refused before it is allocated. The limit holds even if the script catches
/// the error.
#[test]
fn one_result_can_not_take_more_than_there_is() {
    for body in [
        "local mib, t = ('x'):rep(2^20), {} for i = 1, 2000 do t[i] = mib end return table.concat(t)",
        "local s = ('x'):rep(2^24) return s .. s .. s",
        "local s = ('x'):rep(2^23) return ('%s%s%s%s%s'):format(s, s, s, s, s)",
        "local s = ('x'):rep(2^24) for i = 1, 9 do s:upper():reverse() end return s .. s:lower() .. s",
        "local t = {} for i = 1, 1e8 do t[i] = i end",
        "local t = {} for i = 1, 1e8 do t[i * 3] = i end",
    ] {
        let mut bench = Bench::with(
            &format!(
                "local app = {{}}
                function app.message(conn, data)
                  if data == 'go' then
                    while true do pcall(function() {body} end) end
                  end
                  conn:send(data)
                end
                return app"
            ),
            ScriptLimits {
                cpu_budget: Duration::from_millis(20),
                ..limits()
            },
        );
        bench.open(ANN);
        bench.open(BOB);
        bench.text(ANN, "go");
        let effects = bench.effect_lines();
        let is_ended =
            effects[0].contains("not enough memory") || effects[0].contains("ran too long");
        assert!(is_ended, "{body}: {effects:?}");
        // The checked bound includes the amount by which the run may exceed the limit.
        let used = bench.vm.memory_bytes();
        assert!(used <= 44 << 20, "{body}: {} MiB", used >> 20);
        bench.text(BOB, "hello");
        assert_eq!(bench.next_effect_lines(), ["send bob text hello"], "{body}");
        assert!(!bench.vm.is_broken(), "{body}");
    }
}

#[test]
fn scripts_grow_only_while_the_process_has_memory() {
    let is_short = Rc::new(Cell::new(false));
    let world = AppWorld::default();
    let own = Rc::clone(&is_short);
    world.attach(&Host {
        is_short: Some(Rc::new(move || own.get())),
        ..Host::default()
    });
    let mut bench = Bench::in_world(
        &world,
        "local app, kept = {}, {}
        function app.message(conn, data)
          if data == 'grow' then kept[#kept + 1] = ('x'):rep(2^21) .. #kept end
          if data == 'leak' then for i = 1, 2e5 do kept[#kept + 1] = { i } end end
          if data == 'drop' then kept = {} end
          conn:send(tostring(#kept))
        end
        return app",
        ScriptLimits {
            memory_bytes_max: 256 << 20,
            ..limits()
        },
    );
    bench.open(ANN);
    for kept in 1..=10 {
        bench.text(ANN, "grow");
        assert_eq!(bench.effect_lines(), [format!("send ann text {kept}")]);
    }
    is_short.set(true);
    let before = bench.vm.memory_bytes();
    let mut refused = 0;
    for round in 0..40 {
        bench.open(BOB);
        bench.text(BOB, if round % 2 == 0 { "grow" } else { "leak" });
        // The VM may have to wait for a garbage collection.
        let effects = bench.next_effect_lines();
        if effects[0].contains("not enough memory") {
            refused += 1;
        }
        bench.close(BOB);
        bench.advance(1);
        bench.effect_lines();
    }
    assert!(refused >= 20, "{refused}");
    let grown = bench.vm.memory_bytes() - before;
    // 12 MiB: the 4 MiB that the VM may use, plus the memory that script runs allocated before they
    // were ended.
    assert!(grown < 12 << 20, "{grown}");
    // A handler that needs no more memory continues, and garbage is collected although the VM is idle.
    bench.text(ANN, "drop");
    assert_eq!(bench.next_effect_lines(), ["send ann text 0"]);
    for _ in 0..4000 {
        bench.advance(1);
    }
    assert!(bench.vm.memory_bytes() < before / 2);
    is_short.set(false);
    for kept in 1..=10 {
        bench.text(ANN, "grow");
        assert_eq!(bench.next_effect_lines(), [format!("send ann text {kept}")]);
    }
}

#[test]
fn memory_near_its_limit_is_collected_in_slices() {
    let mut bench = Bench::with(
        "local veche = require 'veche'
        local app, kept, scrap = {}, {}, {}
        function app.message(conn, data)
          if data == 'fill' then
            for i = 1, 20000 do kept[#kept + 1] = { id = i, name = 'user' .. i } end
          elseif data == 'drop' then
            kept = {}
          else
            for i = 1, 2000 do scrap[i % 10] = { id = i } end
          end
          conn:send('done')
        end
        return app",
        limits(),
    );
    bench.open(ANN);
    let max = limits().memory_bytes_max;
    for _ in 0..1000 {
        bench.text(ANN, "fill");
        bench.next_effect_lines();
        if bench.vm.memory_bytes() > max / 8 * 7 {
            break;
        }
    }
    bench.pass_some_turns(200);
    bench.text(ANN, "drop");
    for _ in 0..1000 {
        bench.text(ANN, "waste");
        if bench.vm.deadline_ms() == 0 {
            break;
        }
    }
    let full = bench.vm.memory_bytes();
    assert!(
        full > max / 8 * 7,
        "{full}: nothing is collected within a call"
    );
    // A turn collects only a part of the garbage, so it takes several turns to collect all of it.
    let mut turns = 0;
    while bench.vm.memory_bytes() > max / 4 {
        bench.advance(1);
        turns += 1;
        assert!(turns < 1000, "{}", bench.vm.memory_bytes());
    }
    assert!(turns >= 2, "{turns} turns for {full} B");
    bench.pass_some_turns(200);
    assert!(bench.vm.deadline_ms() > bench.now.mono_ms, "it is over");
}

#[test]
fn an_allocation_refused_at_the_limit_starts_no_collection() {
    let mut bench = Bench::with(
        "local app, kept = {}, nil
        function app.message(conn, data)
          -- No block of it is large: one would be refused.
          while true do kept = { kept } end
        end
        return app",
        ScriptLimits {
            cpu_budget: Duration::from_secs(5),
            ..limits()
        },
    );
    bench.open(ANN);
    bench.open(BOB);
    // A run may exceed the memory limit before it is ended. Memory to which the script still refers
    // stays allocated.
    bench.text(ANN, "go");
    bench.pass_some_turns(500);
    bench.effect_lines();
    let max = limits().memory_bytes_max;
    assert!(bench.vm.memory_bytes() > max, "{}", bench.vm.memory_bytes());
    assert!(
        bench.vm.deadline_ms() > bench.now.mono_ms,
        "the collection is over"
    );
    for _ in 0..20 {
        let progress = bench
            .vm
            .message(BOB, MessageKind::Text, b"hello", bench.now);
        assert_eq!(progress, HandlerProgress::Done);
        let effects = bench.effect_lines();
        assert!(effects[0].contains("not enough memory"), "{effects:?}");
        assert!(
            bench.vm.deadline_ms() > bench.now.mono_ms,
            "no collection begins"
        );
    }
    // Later turns try again to start the handler; the message waits until then.
    bench.now.mono_ms += 1000;
    let progress = bench
        .vm
        .message(BOB, MessageKind::Text, b"hello", bench.now);
    assert_eq!(
        (progress, bench.vm.deadline_ms()),
        (HandlerProgress::Waits, 0)
    );
}

#[test]
fn a_reply_that_is_larger_than_the_memory_ends_its_handler() {
    const COUNT: u32 = 300_000;
    type MakeReply = fn() -> CallReply;
    let replies: [(&str, MakeReply); 3] = [
        ("database:query('select 1')", || replies::rows(4 * COUNT)),
        ("veche.history('news')", || replies::history(COUNT)),
        ("veche.presence('news')", || replies::presence(COUNT)),
    ];
    for (call, reply) in replies {
        let mut bench = Bench::with(
            &format!(
                "local veche = require 'veche'
                local database = veche.mysql.connect 'mysql://127.0.0.1:9/none'
                local app = {{}}
                function app.message(conn, data)
                  if data ~= 'go' then return conn:send(data) end
                  local ok, result = pcall(function() return {call} end)
                  conn:send('it goes on')
                end
                return app"
            ),
            ScriptLimits {
                cpu_budget: Duration::from_secs(20),
                ..limits()
            },
        );
        bench.open(ANN);
        bench.open(BOB);
        bench.text(ANN, "go");
        let effects = bench.effects();
        let token = effects.iter().find_map(|(_, effect)| token_of(effect));
        let token = token.unwrap_or_else(|| panic!("{call}: {effects:?}"));
        bench.vm.replied(token, Ok(reply()), bench.now);
        let (used, max) = (bench.vm.memory_bytes(), limits().memory_bytes_max);
        assert!(used <= max + (16 << 20), "{call}: {} MiB", used >> 20);
        let effects = bench.effect_lines();
        assert!(
            effects[0].contains("not enough memory"),
            "{call}: {effects:?}"
        );
        assert!(!bench.vm.is_broken(), "{call}");
        bench.text(BOB, "hello");
        assert_eq!(bench.next_effect_lines(), ["send bob text hello"], "{call}");
    }
}
