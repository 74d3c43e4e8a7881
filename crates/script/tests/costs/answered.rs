//! The cost of replies to calls: they are converted to Lua values on the worker's thread.

use veche_calls::channel::{ChannelPublication, ChannelReply};
use veche_calls::mysql::{MysqlReply, MysqlValue, Rows};
use veche_calls::redis::{RedisReply, RedisValue};
use veche_calls::{CallError, CallErrorKind, CallOutcome, CallReply, WorkerConnection};
use veche_script::ConnectionId;
use veche_types::WorkerId;

use super::support::{ANN, BOB, Bench, replies, token_of};
use super::{
    ATTEMPTS, EXCESS_BYTES_MAX, MEMORY_BYTES_MAX, RUN_MAX, limits_of_costs, measure, resident,
};

/// The number of rows, publications and so on in a reply.
const COUNT: u32 = 500_000;

/// A call in Lua, and its reply.
type Answered = (&'static str, fn() -> CallReply);

const ANSWERED: &[Answered] = &[
    ("database:query('select 1')", || replies::rows(COUNT)),
    ("database:query('select 2')", || {
        let values = (0..COUNT).map(|number| MysqlValue::Bytes(number.to_string().into()));
        let rows = Rows {
            columns: (0..100).map(|column| format!("c{column}")).collect(),
            values: values.collect(),
        };
        CallReply::Mysql(MysqlReply::Rows(rows))
    }),
    ("veche.history('news')", || replies::history(COUNT)),
    ("veche.history('tags')", || {
        let publication = ChannelPublication {
            tags: (0..COUNT)
                .map(|tag| (format!("t{tag}"), "x".to_owned()))
                .collect(),
            ..replies::publication(1)
        };
        CallReply::Channel(ChannelReply::History {
            publications: vec![publication],
            position: "e:1".to_owned(),
        })
    }),
    ("veche.presence('news')", || replies::presence(COUNT)),
    ("veche.connections { user = 'ann' }", || {
        let places = (0..2 * COUNT).map(|index| WorkerConnection {
            worker: WorkerId(0),
            connection: ConnectionId {
                index,
                generation: 1,
            },
        });
        CallReply::Places(places.collect())
    }),
    ("server:keys('*')", || {
        let values = (0..COUNT).map(|number| RedisValue::Bytes(number.to_string().into()));
        CallReply::Redis(RedisReply::Value(RedisValue::List(values.collect())))
    }),
    ("veche.api.channels()", || {
        let channels = "\"channel\",".repeat(1 << 20);
        let body = format!("{{\"result\":{{\"channels\":[{channels}1]}}}}");
        CallReply::Api(body.into_bytes())
    }),
];

fn bench_of(call: &str) -> Bench {
    Bench::with(
        &format!(
            "local veche = require 'veche'
            local database = veche.mysql.connect 'mysql://127.0.0.1:9/none'
            local server = veche.redis.connect 'redis://127.0.0.1:9'
            local app = {{}}
            function app.message(conn, data)
              if data ~= 'go' then return conn:send(data) end
              -- A handler that has used up its budget may handle the error for a moment.
              print(select(2, pcall(function() return {call} end)))
            end
            return app"
        ),
        limits_of_costs(),
    )
}

/// Ends the calls in progress with an error; returns the other effects as lines.
pub(super) fn fail_calls(bench: &mut Bench) -> Vec<String> {
    let mut lines = Vec::new();
    // The script may repeat a failed call, so calls are failed in several rounds.
    for _ in 0..ROUNDS {
        let effects = bench.take_effects();
        if effects.is_empty() {
            break;
        }
        for (line, effect) in effects {
            match token_of(&effect) {
                Some(token) => {
                    let error = CallError::new(CallErrorKind::Unreachable, "nobody is there");
                    bench.vm.replied(token, Err(error), bench.now);
                }
                None => lines.push(line),
            }
        }
    }
    lines
}

/// The maximum number of rounds in which the calls in progress are failed.
const ROUNDS: usize = 100;

pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for (call, reply) in ANSWERED {
        let mut bench = bench_of(call);
        bench.open(BOB);
        let mut least = std::time::Duration::MAX;
        for attempt in 0..ATTEMPTS as u32 {
            let id = ConnectionId {
                index: 1000 + attempt,
                generation: 1,
            };
            bench.open(id);
            bench.effect_lines();
            bench.text(id, "go");
            let effects = bench.take_effects();
            let token = effects.iter().find_map(|(_, effect)| token_of(effect));
            let token = token.unwrap_or_else(|| panic!("{call}: {effects:?}"));
            let outcome: CallOutcome = Ok(reply());
            let before = resident("VmRSS:");
            let Bench { vm, now, .. } = &mut bench;
            let cost = measure(before, || vm.replied(token, outcome, *now));
            least = least.min(cost.cpu);
            let effects = fail_calls(&mut bench);
            let is_ended =
                |line: &String| line.contains("ran too long") || line.contains("not enough memory");
            let bytes_max = MEMORY_BYTES_MAX + EXCESS_BYTES_MAX;
            let is_good = effects.iter().any(is_ended) && cost.bytes <= bytes_max;
            if !is_good || bench.vm.is_broken() {
                problems.push(format!("{call}: {} MiB, {effects:.300?}", cost.bytes >> 20));
            }
            bench.text(BOB, "hello");
            assert_eq!(bench.next_effect_lines(), ["send bob text hello"], "{call}");
            if least <= RUN_MAX {
                break;
            }
        }
        println!("{call}: {least:.1?}");
        if least > RUN_MAX {
            problems.push(format!("{call}: {least:.1?}"));
        }
    }
    problems
}

/// Starts tasks that each start two more, so that there are more tasks than can ever run.
pub(super) fn spawn_forever() {
    let before = resident("VmRSS:");
    for body in [
        "local function f() veche.spawn(f) veche.spawn(f) end veche.spawn(f)",
        "local function f() veche.sleep(0) veche.spawn(f) veche.spawn(f) end veche.spawn(f)",
        "local function f() veche.spawn(f) veche.spawn(f) veche.sleep(1000) end veche.spawn(f)",
    ] {
        let mut bench = Bench::with(
            &format!(
                "local veche = require 'veche'
                local app = {{}}
                function app.message(conn, data)
                  if data ~= 'go' then return conn:send(data) end
                  {body}
                end
                return app"
            ),
            limits_of_costs(),
        );
        bench.open(ANN);
        bench.open(BOB);
        bench.text(ANN, "go");
        let (mut late, mut answers, mut most, mut used) = (0, 0, 0, 0);
        for _ in 0..200 {
            bench.now.mono_ms += 20;
            let Bench { vm, now, .. } = &mut bench;
            let cost = measure(before, || vm.turn(*now));
            most = most.max(cost.bytes);
            late += u32::from(cost.cpu > RUN_MAX);
            bench.text(BOB, "hello");
            let effects = bench.effect_lines();
            answers += effects
                .iter()
                .filter(|line| line.starts_with("send"))
                .count();
            assert!(!bench.vm.is_broken(), "{body}");
            used = used.max(bench.vm.memory_bytes());
            bench.open(BOB);
        }
        let (used_mib, most_mib) = (used >> 20, most >> 20);
        println!("{body}: {used_mib} of {most_mib} MiB, {late} late, {answers} answers");
        assert!(
            used_mib <= (MEMORY_BYTES_MAX + EXCESS_BYTES_MAX) >> 20,
            "{body}"
        );
        // Within a turn the VM may use more memory than between turns. The system's allocator also
        // needs some memory for each small block.
        let most_max = MEMORY_BYTES_MAX + 2 * EXCESS_BYTES_MAX + EXCESS_BYTES_MAX / 2;
        assert!(most <= most_max, "{body}");
        // On a core that is shared with other processes, some turns take longer.
        assert!(late <= 10, "{body}: {late} turns of 200 took too long");
        assert!(answers >= 10, "{body}: {answers}");
    }
}
