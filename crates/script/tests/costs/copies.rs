//! The cost of lists that repeat one long string: Lua stores the string once, and each function limits what it copies
//! out of Lua.

use veche_calls::{CallError, CallErrorKind};
use veche_script::hooks::{AppHookRequest, Hook};
use veche_script::{Effect, MessageKind, Token};
use veche_types::{PayloadKind, PayloadRef};

use super::support::replies::hook_request;
use super::support::{BOB, Bench, request};
use super::{EXCESS_BYTES_MAX, MIB, SENT_BYTES_MAX, limits_of_costs, measure, resident};

/// Defines `text`, of a mebibyte, and `list`, which repeats it.
const SETUP: &str = "local veche = require 'veche'
    local text, list = ('x'):rep(2 ^ 20), {}
    for at = 1, 200 do list[at] = text end
    local url, ws = 'http://127.0.0.1:9/', 'ws://127.0.0.1:9/'
    local app = {}";

/// The memory of the VM itself, of the test and of the texts of errors.
const OTHER_BYTES: usize = 8 * MIB;

/// Calls that fail, each with a part of its error text.
const CALLS: &[(&str, &str)] = &[
    (
        "veche.http.get(url, { headers = { x = list } })",
        "at most 65536 bytes expected",
    ),
    (
        "veche.http.post(url, { form = { a = list } })",
        "bad option form to 'post': the form is longer than 8 MiB",
    ),
    (
        "veche.http.post(url, { form = { [text:rep(9)] = 1 } })",
        "bad option form to 'post': the form is longer than 8 MiB",
    ),
    (
        "veche.http.get(url, { query = { a = list } })",
        "bad option query to 'get': the URL is longer than 16384 bytes",
    ),
    (
        "veche.http.request { url = url, method = text:rep(16) }",
        "bad option method to 'request'",
    ),
    (
        "veche.websocket.connect(ws, { headers = { x = list } })",
        "headers: names and values may have at most 8192 bytes in total",
    ),
    (
        "veche.websocket.connect(ws, { protocols = list })",
        "protocols: subprotocol names of at most 8192 bytes in total expected",
    ),
    (
        "local names = {} for at = 1, 3000 do names[at] = text:sub(1, 60000) end
        veche.table('rows', { key = 'id:u32', columns = {}, indexes = { x = names } })",
        "the schema is longer than 1 MiB",
    ),
    (
        "local ids, rows = {}, veche.table('few', { key = 'id:u32', columns = {} })
        for at = 1, 5e5 do ids[at] = 'id' end
        for row in rows:scan('key', { columns = ids }) do print(row) end",
        "columns: at most 128 names expected",
    ),
    (
        "local rows = veche.table('long', { key = 'id:u32', columns = { text = 'string' } })
        rows:batch(function(batch)
          for at = 1, 1000 do batch:insert { id = at, text = text:sub(1, 6e4) } end
        end)",
        "the values of a batch may have at most 16 MiB",
    ),
    (
        "local command, commands = { 'set' }, {}
        for at = 2, 1e5 do command[at] = '' end
        for at = 1, 500 do commands[at] = command end
        veche.redis.connect('redis://127.0.0.1:9'):pipeline(commands)",
        "the commands of a call may have at most 16 MiB",
    ),
    (
        "local command, commands = { 'set' }, {}
        for at = 2, 1e5 do command[at] = 123456789012 end
        for at = 1, 100 do commands[at] = command end
        veche.redis.connect('redis://127.0.0.1:9'):pipeline(commands)",
        "the commands of a call may have at most 16 MiB",
    ),
    (
        "veche.metrics.counter('a_counter', 'help', list)",
        "bad argument #3 to 'metrics.counter'",
    ),
    (
        "veche.connections { user = text:rep(16) }",
        "bad option user to 'connections'",
    ),
];

/// Runs a call in a handler; returns its cost in bytes, and what was printed. As everywhere in this file, memory that the
/// process still has from earlier calls is not counted.
fn costs(body: &str) -> (usize, Vec<String>) {
    let before = resident("VmRSS:");
    let mut bench = Bench::with(
        &format!(
            "{SETUP}
            function app.message(conn)
              local ok, why = pcall(function() {body} end)
              print(ok, tostring(why):sub(1, 400))
            end
            return app"
        ),
        veche_script::ScriptLimits {
            // The CPU budget is long, since these tests are about limits in bytes.
            cpu_budget: std::time::Duration::from_secs(20),
            ..limits_of_costs()
        },
    );
    bench.open(BOB);
    let Bench { vm, now, .. } = &mut bench;
    let cost = measure(before, || {
        vm.message(BOB, MessageKind::Text, b"go", *now);
    });
    (cost.bytes, bench.effect_lines())
}

pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for (body, words) in CALLS {
        let (bytes, effects) = costs(body);
        // In some cases the VM itself holds a list or a string of 16 MiB.
        let most = EXCESS_BYTES_MAX + 16 * MIB + OTHER_BYTES;
        let is_told = effects.iter().any(|line| line.contains(words));
        if bytes > most || !is_told {
            problems.push(format!("{body}: {} MiB, {effects:?}", bytes >> 20));
        }
    }
    problems.extend(of_responses());
    problems.extend(of_hooks());
    problems.extend(of_calls_in_progress());
    problems
}

/// Tests the headers of responses and of refused handshakes; returns a description of the problem, if there is one.
fn of_responses() -> Option<String> {
    let before = resident("VmRSS:");
    let mut bench = Bench::with(
        &format!(
            "{SETUP}
            function app.request() return 200, {{ X = list }}, '' end
            function app.handshake(req)
              if req.path == '/user' then return {{ user = text }} end
              return 403, {{ X = list }}, ''
            end
            return app"
        ),
        limits_of_costs(),
    );
    let Bench { vm, now, .. } = &mut bench;
    let cost = measure(before, || {
        vm.request(BOB, request("GET", "/", ""), *now);
        vm.handshake(BOB, request("GET", "/", ""), *now);
        vm.handshake(BOB, request("GET", "/user", ""), *now);
    });
    let effects = bench.effect_lines();
    let count = |words: &str| effects.iter().filter(|line| line.contains(words)).count();
    let is_good = cost.bytes <= EXCESS_BYTES_MAX + OTHER_BYTES
        && count("request: the headers are longer than 64 KiB") == 2
        && count("handshake: user may have at most 64 KiB") == 1
        && count("respond bob 500") == 1
        && count("refuse bob 500") == 2;
    (!is_good).then(|| format!("responses: {} MiB, {effects:?}", cost.bytes >> 20))
}

/// Tests the results of hooks; returns a description of each problem.
fn of_hooks() -> Vec<String> {
    let asked = AppHookRequest {
        data: Some(PayloadRef {
            kind: PayloadKind::Binary,
            bytes: b"x",
        }),
        ..hook_request(Hook::Connect)
    };
    let results = [
        "{ channels = list }",
        "(function() local subs = {} for at = 1, 200 do subs['c' .. at] = { info = text } end return { subs = subs } end)()",
        "(function() local subs = {} for at = 1, 200 do subs['c' .. at] = { data = list[at] } end return { subs = subs } end)()",
        "(function() local subs = {} for at = 1, 200 do subs['c' .. at] = { b64data = ('x'):rep(2 ^ 20) } end return { subs = subs } end)()",
    ];
    let problem = |result: &&str| {
        let before = resident("VmRSS:");
        let mut bench = Bench::with(
            &format!(
                "{SETUP}
                app.centrifuge = {{ connect = function() return {result} end }}
                return app"
            ),
            veche_script::ScriptLimits {
                cpu_budget: std::time::Duration::from_secs(20),
                ..limits_of_costs()
            },
        );
        let Bench { vm, now, .. } = &mut bench;
        let cost = measure(before, || vm.decide(7, &asked, *now));
        let effects = bench.effect_lines();
        let is_told = effects
            .iter()
            .any(|line| line.contains("centrifuge.connect: the result is larger than 16 MiB"));
        let is_good = is_told && cost.bytes <= EXCESS_BYTES_MAX + OTHER_BYTES;
        (!is_good).then(|| format!("{result}: {} MiB, {effects:.300?}", cost.bytes >> 20))
    };
    results.iter().filter_map(problem).collect()
}

/// Any number of tasks may send the same long string, which must not be copied for each of them.
fn of_calls_in_progress() -> Option<String> {
    let before = resident("VmRSS:");
    let mut bench = Bench::with(
        &format!(
            "{SETUP}
            function app.message(conn, data)
              local long = ('x'):rep(2 ^ 23)
              for at = 1, tonumber(data) do
                veche.spawn(function()
                  local ok, why = pcall(veche.http.post, url, long)
                  local error = veche.error(why)
                  print(error.kind, error.retryable, error.message)
                end)
              end
            end
            return app"
        ),
        limits_of_costs(),
    );
    bench.open(BOB);
    // The calls were sent, and wait for their replies.
    let (mut tokens, mut calls) = (Vec::<Token>::new(), Vec::new());
    let mut effects = Vec::new();
    let cost = measure(before, || {
        bench.text(BOB, "20");
        for _ in 0..40 {
            bench.advance(1);
            for (line, effect) in bench.take_effects() {
                match effect {
                    Effect::Call { token, call } => {
                        tokens.push(token);
                        calls.push(call);
                    }
                    _ => effects.push(line),
                }
            }
        }
    });
    let refused = "full\ttrue\tapp.lua:";
    let words = "the calls in progress have sent 64 MiB: wait for their replies";
    let is_refused = |line: &&String| line.starts_with(refused) && line.contains(words);
    let count = effects.iter().filter(is_refused).count();
    drop(calls);
    for token in &tokens {
        let error = CallError::new(CallErrorKind::Refused, "no");
        bench.vm.replied(*token, Err(error), bench.now);
    }
    bench.effect_lines();
    bench.text(BOB, "1");
    bench.advance(1);
    let again = bench.take_effects();
    let is_free = again
        .iter()
        .any(|(_, effect)| matches!(effect, Effect::Call { .. }));
    let is_good = tokens.len() == 7
        && count == 13
        && is_free
        && cost.bytes <= SENT_BYTES_MAX + EXCESS_BYTES_MAX + 2 * 8 * MIB + OTHER_BYTES;
    (!is_good).then(|| {
        let calls = tokens.len();
        format!("{calls} calls, {} MiB, {effects:.600?}", cost.bytes >> 20)
    })
}
