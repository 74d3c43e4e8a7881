//! Tests that a resource that is kept across several calls is released when the script no longer refers to it.

mod support;

use std::sync::Arc;

use support::{ANN, Bench};
use veche_calls::mysql::{MysqlAction, MysqlReply};
use veche_calls::redis::{RedisAction, RedisReply};
use veche_calls::{Call, CallReply, Lease};
use veche_script::Effect;

/// Counts the resources in use.
struct Held(Arc<()>);

impl Held {
    fn new() -> Self {
        Self(Arc::new(()))
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Answers each call that requests a resource, and returns the number of such calls.
    fn answer(&self, bench: &mut Bench) -> usize {
        let mut answers = 0;
        for (_, effect) in bench.effects() {
            let Effect::Call { call, token } = effect else {
                continue;
            };
            let lease = Lease::new(Arc::clone(&self.0));
            let reply = match *call {
                Call::Mysql(call) if call.action == MysqlAction::Begin => {
                    CallReply::Mysql(MysqlReply::Begun(lease))
                }
                Call::Redis(call) if matches!(call.action, RedisAction::Subscribe { .. }) => {
                    CallReply::Redis(RedisReply::Subscribed(lease))
                }
                _ => continue,
            };
            answers += 1;
            bench.vm.replied(token, Ok(reply), bench.now);
        }
        answers
    }
}

fn app(body: &str) -> Bench {
    let mut bench = Bench::new(&format!(
        "local veche, app = require 'veche', {{}}
        local db = veche.mysql.connect 'mysql://root@127.0.0.1/test'
        local redis = veche.redis.connect 'redis://127.0.0.1'
        local kept
        function app.message(conn, data)
          if data == 'forget' then kept = nil end
          if data == 'collect' then
            -- A compiled loop calls no finalizers.
            for i = 1, 2000 do local garbage = ('x'):rep(10000) .. i collectgarbage() end
            return
          end
          {body}
        end
        return app"
    ));
    bench.open(ANN);
    bench
}

/// Runs the garbage collector.
fn collect(bench: &mut Bench) {
    for _ in 0..5 {
        bench.text(ANN, "collect");
        bench.advance(1);
    }
}

#[test]
fn an_abandoned_coroutine_ends_its_transaction_when_it_is_collected() {
    let (held, mut bench) = (
        Held::new(),
        app("if data == 'go' then
            kept = coroutine.wrap(function()
              db:transaction(function() coroutine.yield(1) end)
            end)
            print(kept())
          end"),
    );
    bench.text(ANN, "go");
    assert_eq!(held.answer(&mut bench), 1);
    collect(&mut bench);
    assert_eq!(bench.effect_lines(), ["1", "ready ann"]);
    assert_eq!(held.count(), 1, "it may go on");
    bench.text(ANN, "forget");
    collect(&mut bench);
    assert_eq!(held.count(), 0);
    assert_eq!(bench.effect_lines(), [""; 0], "nothing has failed");
}

#[test]
fn a_coroutine_that_is_ended_lets_go_at_once() {
    let (held, mut bench) = (
        Held::new(),
        app("kept = kept or veche.spawn(function()
            db:transaction(function() veche.sleep(100) end)
          end)
          if data == 'cancel' then kept:cancel() end"),
    );
    bench.text(ANN, "go");
    bench.advance(1);
    assert_eq!(held.answer(&mut bench), 1);
    assert_eq!(held.count(), 1);
    bench.text(ANN, "cancel");
    bench.advance(1);
    assert!(bench.effect_lines().iter().any(|line| line.contains("End")));
    // The call that ends the transaction holds the last reference to it. `effect_lines` removes the call.
    bench.effect_lines();
    assert_eq!(held.count(), 0);
}

#[test]
fn forgotten_subscriptions_are_let_go_of() {
    let (held, mut bench) = (
        Held::new(),
        app("if data == 'go' then
            kept = {}
            for i = 1, 50 do
              veche.spawn(function() kept[i] = redis:subscribe('news' .. i) end)
            end
          end"),
    );
    bench.text(ANN, "go");
    bench.advance(1);
    assert_eq!(held.answer(&mut bench), 50);
    collect(&mut bench);
    bench.effect_lines();
    assert_eq!(held.count(), 50);
    bench.text(ANN, "forget");
    collect(&mut bench);
    assert_eq!(held.count(), 0);
}
