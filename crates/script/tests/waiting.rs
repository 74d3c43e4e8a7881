//! Tests of where waiting is possible and where it raises an error. The guide's table lists the same places.

mod support;

use std::time::Duration;

use support::Bench;
use veche_calls::password::{PasswordAction, PasswordReply};
use veche_calls::{Call, CallError, CallErrorKind, CallReply, PasswordCall, ResolveCall};
use veche_script::{Effect, Token};

fn check(body: &str, expected: &[&str]) {
    assert_eq!(Bench::run(body), expected, "{body}");
}

#[test]
fn waiting_works_through_lua() {
    check("veche.sleep(1) print('slept')", &["slept"]);
    check(
        "print(pcall(function() veche.sleep(1) return 1 end))",
        &["true\t1"],
    );
    check(
        "print(pcall(function() veche.sleep(1) error('x', 0) end))",
        &["false\tx"],
    );
    check(
        "print(xpcall(function() veche.sleep(1) error('x', 0) end, function(e) return e .. '!' end))",
        &["false\tx!"],
    );
    check(
        "local t = setmetatable({}, { __index = function(_, k) veche.sleep(1) return k end })
        print(t.key)",
        &["key"],
    );
    check(
        "local t = setmetatable({}, { __add = function() veche.sleep(1) return 5 end,
          __call = function() veche.sleep(1) return 6 end, __eq = function() veche.sleep(1) return true end,
          __lt = function() veche.sleep(1) return true end, __concat = function() veche.sleep(1) return 'c' end })
        print(t + 1, t(), t == setmetatable({}, getmetatable(t)), t < t, t .. 'x')",
        &["5\t6\ttrue\ttrue\tc"],
    );
    check(
        "for i in function(_, i) veche.sleep(1) i = (i or 0) + 1 return i <= 3 and i or nil end do print(i) end",
        &["1", "2", "3"],
    );
    check(
        "local next = coroutine.wrap(function() for i = 1, 3 do veche.sleep(1) coroutine.yield(i) end end)
        print(next(), next(), next())",
        &["1\t2\t3"],
    );
    check(
        "local co = coroutine.create(function(a) local b = coroutine.yield(a + 1) veche.sleep(1) return b * 2 end)
        print(coroutine.resume(co, 1)) print(coroutine.resume(co, 4)) print(coroutine.resume(co))",
        &["true\t2", "true\t8", "false\tcannot resume dead coroutine"],
    );
    check(
        "table.foreach({ 'x' }, function(_, v) veche.sleep(1) print(v) end)",
        &["x"],
    );
    check(
        "local inner = coroutine.wrap(function() local innermost = coroutine.wrap(function() veche.sleep(1) coroutine.yield('deep') end)
          coroutine.yield(innermost()) end)
        print(inner())",
        &["deep"],
    );
    check(
        "local co = coroutine.create(function() veche.sleep(5) end)
        veche.spawn(coroutine.resume, co)
        veche.sleep(1)
        print(coroutine.resume(co))",
        &["false\tcannot resume a coroutine that waits"],
    );
}

#[test]
fn waiting_says_where_it_cannot() {
    for body in [
        "table.sort({ 3, 2, 1 }, function(a, b) veche.sleep(1) return a < b end)",
        "string.gsub('abc', '.', function(c) veche.sleep(1) return c end)",
        "veche.json.encode(setmetatable({}, {})) string.gsub('a', 'a', function() veche.spawn(function() end):join() end)",
    ] {
        let effects = Bench::run(&format!("print(pcall(function() {body} end))"));
        assert!(
            effects.iter().any(|line| line.contains("can't wait here")),
            "{body}: {effects:?}"
        );
    }
}

#[test]
fn errors_of_waits_stand_at_the_scripts_line() {
    check(
        "local function nap()
          veche.sleep(1)
        end
        print(select(2, pcall(string.gsub, 'a', 'a', function() nap() end)):match('^app.lua:%d+'))
        local task = veche.spawn(function() print(select(2, pcall(function() nap() end))) end)
        veche.sleep(0)
        task:cancel()",
        &["app.lua:5", "app.lua:5: cancelled"],
    );
}

/// Garbage collections may free a cancelled task at any time if nothing else refers to it.
#[test]
fn a_cancelled_task_without_references_logs_no_error() {
    for wait in ["", "veche.sleep(0)"] {
        for _ in 0..30 {
            let effects = Bench::run(&format!(
                "for _ = 1, 200 do
                  local tasks = {{}}
                  for number = 1, 8 do tasks[number] = veche.spawn(function() veche.sleep(1) end) end
                  {wait}
                  for number = 1, 8 do
                    tasks[number]:cancel()
                    tasks[number] = nil
                  end
                  veche.sleep(0)
                end
                print('done')"
            ));
            assert_eq!(effects, ["done"], "{wait}");
        }
    }
}

#[test]
fn sleeping_is_never_too_short_and_checked() {
    let effects = Bench::run(
        "for _, bad in ipairs { -1, 0/0, 'x', {}, 1e300 } do print(pcall(veche.sleep, bad)) end",
    );
    assert!(
        effects.len() == 5
            && effects
                .iter()
                .all(|line| line.contains("bad argument #1 to 'sleep'")),
        "{effects:?}"
    );
}

#[test]
fn tasks() {
    check(
        "local a = veche.spawn(function(x) veche.sleep(1) return x, nil, 3 end, 7)
        local b = veche.spawn(function() return 'at once' end)
        print(b:join()) print(a:join()) print(a:join())",
        &["at once", "7\tnil\t3", "7\tnil\t3"],
    );
    check(
        "local t = veche.spawn(function() veche.sleep(1) error('oh', 0) end)
        print(pcall(t.join, t))",
        &["false\toh"],
    );
    check(
        "local t = veche.spawn(function() local ok, e = pcall(veche.sleep, 100) print(ok, e) return 'tidied' end)
        veche.sleep(1) print(t:cancel(), t:cancel()) print(t:join())",
        &["true\tfalse", "false\tcancelled", "tidied"],
    );
    check(
        "local t = veche.spawn(function() veche.sleep(100) print('never') end)
        veche.sleep(1) t:cancel() print(pcall(t.join, t))",
        &["false\tcancelled"],
    );
    check(
        "local t = veche.spawn(function() print('never') end)
        t:cancel() print(pcall(t.join, t))",
        &["false\tcancelled"],
    );
}

#[test]
fn timers() {
    check(
        "local count = 0
        local every every = veche.timer.every(1, function(what) count = count + 1 print(what, count) if count == 3 then every:cancel() veche.sleep(0) end end, 'tick')
        veche.timer.after(0.5, print, 'after')",
        &["after", "tick\t1", "tick\t2", "tick\t3"],
    );
}

#[test]
fn cancelled_timers_leave_nothing() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.message(conn, data)
          for i = 1, 500 do
            local t = veche.timer.after(3e7, print, 'never')
            veche.sleep(0)
            t:cancel()
          end
        end
        return app",
    );
    bench.open(support::ANN);
    for _ in 0..20 {
        bench.text(support::ANN, "go");
        bench.pass_time();
    }
    assert_eq!(bench.vm.tasks(), 0);
    // Cancelled timers are removed by a scan that starts only when there are more than 1024, so
    // up to that number may remain.
    assert!(bench.vm.sleepers() <= 1024 + 1, "{}", bench.vm.sleepers());
}

/// Starts a call of `veche.resolve` in `app.start` and returns its token.
fn calling(body: &str) -> (Bench, Token) {
    let (bench, token, call) = beginning(body);
    let resolve = Call::Resolve(ResolveCall {
        host: "example.org".to_owned(),
        timeout: Duration::from_secs(10),
    });
    assert_eq!(call, resolve);
    (bench, token)
}

/// Starts a call in `app.start`.
fn beginning(body: &str) -> (Bench, Token, Call) {
    let mut bench = Bench::new(&format!(
        "local veche = require 'veche'
        local app = {{}}
        function app.start() {body} end
        return app"
    ));
    let effects = bench.effects();
    let [(_, Effect::Call { token, call })] = &effects[..] else {
        panic!("{effects:?}");
    };
    let (token, call) = (*token, Call::clone(call));
    (bench, token, call)
}

#[test]
fn outgoing_calls_return_their_results() {
    let (mut bench, token) =
        calling("local list = veche.resolve('example.org') print(#list, list[1], list[2])");
    let addresses = ["192.0.2.7", "2001:db8::1"].map(|text| text.parse().expect("an address"));
    let reply = Ok(CallReply::Addresses(addresses.to_vec()));
    bench.vm.replied(token, reply.clone(), bench.now);
    assert_eq!(bench.effect_lines(), ["2\t192.0.2.7\t2001:db8::1"]);
    // A second response to the same call is ignored.
    bench.vm.replied(token, reply, bench.now);
    assert!(bench.effect_lines().is_empty());
}

#[test]
fn calls_to_the_world_fail_where_the_script_is() {
    let (mut bench, token) = calling("print(pcall(veche.resolve, 'example.org'))");
    let fault = CallError::new(CallErrorKind::Unreachable, "no address for \"example.org\"");
    bench.vm.replied(token, Err(fault.clone()), bench.now);
    assert_eq!(
        bench.effect_lines(),
        ["false\tno address for \"example.org\" [unreachable]"]
    );

    let (mut bench, token) = calling("local _ = 1\nveche.resolve('example.org')\n");
    bench.vm.replied(token, Err(fault), bench.now);
    let effects = bench.effect_lines();
    assert!(
        effects[0].contains("app.lua:4: no address for \"example.org\""),
        "{effects:?}"
    );
}

/// The kind of a call's error is preserved on every way by which a script can catch the error.
#[test]
fn errors_of_calls_are_known_by_their_kind() {
    let tell = "local function tell(why)
            local about = veche.error(why)
            print(about.kind, about.code, about.retryable, about.message)
        end\n";
    for body in [
        "tell(select(2, pcall(veche.resolve, 'example.org')))",
        "local task = veche.spawn(veche.resolve, 'example.org') tell(select(2, pcall(task.join, task)))",
        "xpcall(veche.resolve, tell, 'example.org')",
        "tell(select(2, xpcall(veche.resolve, debug.traceback, 'example.org')))",
        "tell(select(2, coroutine.resume(coroutine.create(veche.resolve), 'example.org')))",
        "local ok, why = pcall(veche.resolve, 'example.org') tell(select(2, pcall(error, 'lost: ' .. why, 0)))",
    ] {
        let (mut bench, token) = calling(&format!("{tell} {body}"));
        let fault = CallError::new(CallErrorKind::Unreachable, "no address for \"example.org\"");
        bench.vm.replied(token, Err(fault), bench.now);
        let effects = bench.effect_lines();
        let last = effects.last().expect("it tells");
        assert!(
            last.starts_with("unreachable\tnil\ttrue\t"),
            "{body}: {effects:?}"
        );
        assert!(
            last.ends_with("no address for \"example.org\""),
            "{body}: {effects:?}"
        );
    }
    let (mut bench, token) = calling(&format!(
        "{tell} tell(select(2, pcall(veche.resolve, 'example.org')))
        tell('own') tell(nil) tell(7) tell({{}})"
    ));
    let fault = CallError::new(CallErrorKind::Timeout, "late");
    bench.vm.replied(token, Err(fault), bench.now);
    assert_eq!(
        bench.effect_lines(),
        [
            "timeout\tnil\tfalse\tlate",
            "script\tnil\tfalse\town",
            "script\tnil\tfalse\tnil",
            "script\tnil\tfalse\t7",
            "script\tnil\tfalse\tan error object of type table"
        ]
    );
}

#[test]
fn an_abandoned_call_is_cancelled() {
    let (mut bench, token) = calling(
        "local task = veche.spawn(function() veche.resolve('example.org') end)
        veche.sleep(1) print(task:cancel(), pcall(task.join, task))",
    );
    bench.advance(1000);
    bench.pass_time();
    assert_eq!(
        bench.effect_lines(),
        ["cancel call", "true\tfalse\tcancelled"]
    );
    let reply = Ok(CallReply::Addresses(Vec::new()));
    bench.vm.replied(token, reply, bench.now);
    assert!(bench.effect_lines().is_empty());

    let (mut bench, _) = calling("veche.resolve('example.org')");
    bench.vm.finish();
    assert_eq!(bench.effect_lines(), ["cancel call"]);
}

#[test]
fn passwords_are_hashed_elsewhere_and_a_busy_server_is_no_error() {
    let hash = "$argon2id$v=19$m=8,t=1,p=1$c2FsdA$aGFzaA";
    let verify = format!("print(veche.password.verify('horse', '{hash}'))");
    for (body, action, reply, effects) in [
        (
            "print(veche.password.hash('horse'))",
            PasswordAction::Hash,
            Ok(PasswordReply::Hash(hash.to_owned())),
            hash,
        ),
        (
            &*verify,
            PasswordAction::Verify {
                hash: Some(hash.to_owned()),
            },
            Ok(PasswordReply::IsRight(true)),
            "true",
        ),
        (
            "print(veche.password.verify('horse', nil))",
            PasswordAction::Verify { hash: None },
            Ok(PasswordReply::IsRight(false)),
            "false",
        ),
        (
            "print(veche.password.hash('horse'))",
            PasswordAction::Hash,
            Err(CallError::new(CallErrorKind::Refused, "too many")),
            "nil\tbusy",
        ),
        (
            "print(pcall(veche.password.hash, 'horse'))",
            PasswordAction::Hash,
            Err(CallError::new(
                CallErrorKind::Broken,
                "password: out of memory",
            )),
            "false\tpassword: out of memory [broken]",
        ),
    ] {
        let (mut bench, token, call) = beginning(body);
        let password = b"horse".to_vec();
        assert_eq!(call, Call::Password(PasswordCall { password, action }));
        bench
            .vm
            .replied(token, reply.map(CallReply::Password), bench.now);
        assert_eq!(bench.effect_lines(), [effects], "{body}");
    }
}
