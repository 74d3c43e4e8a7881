//! Tests that the log lines and errors of hook handlers and tasks name the client to which the handler or task
//! belongs.

mod support;

use support::replies::hook_request;
use support::{ANN, Bench, request};
use veche_runtime::LogContext;
use veche_script::Effect;
use veche_script::hooks::{AppHookRequest, Hook};

fn asked() -> AppHookRequest<'static> {
    AppHookRequest {
        subject: "news",
        ..hook_request(Hook::Publish)
    }
}

/// Returns the log lines with their contexts.
fn logged(bench: &mut Bench) -> Vec<(String, LogContext)> {
    let effects = bench.effects().into_iter();
    let lines = effects.filter_map(|(line, effect)| match effect {
        Effect::Log { about, .. } => Some((line, about.map_or_else(Default::default, |own| *own))),
        _ => None,
    });
    lines.collect()
}

fn client() -> LogContext {
    LogContext {
        connection: Some("c1".to_owned()),
        user: Some("ann".to_owned()),
        ..LogContext::default()
    }
}

#[test]
fn a_hook_and_its_tasks_name_the_client() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = { centrifuge = {} }
        function app.error(err, context)
          print(err, context.handler, context.app, context.connection, context.user, context.path)
        end
        function app.centrifuge.publish(client, channel)
          print('decides')
          veche.spawn(function()
            veche.sleep(1)
            print('task')
            veche.spawn(function() veche.sleep(1) error('of a task', 0) end)
          end)
          veche.sleep(0.1)
          error('of a hook', 0)
        end
        return app",
    );
    bench.vm.decide(7, &asked(), bench.now);
    assert_eq!(logged(&mut bench), [("decides".to_owned(), client())]);
    assert_eq!(bench.vm.log_contexts(), 2);
    bench.pass_time();
    let effects = logged(&mut bench);
    let starts = [
        "Error: of a hook",
        "of a hook\tcentrifuge.publish\ttest\tc1\tann\tnil",
        "task",
        "Error: of a task",
        "of a task\ttask\ttest\tc1\tann\tnil",
    ];
    assert_eq!(effects.len(), starts.len(), "{effects:?}");
    for ((line, about), start) in effects.iter().zip(starts) {
        assert!(line.starts_with(start), "{effects:?}");
        assert_eq!(*about, client(), "{line}");
    }
    assert_eq!(bench.vm.log_contexts(), 0, "nothing is left of them");
}

#[test]
fn a_task_outlives_its_request_with_its_context() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = {}
        function app.request(req)
          for at = 1, 3 do veche.spawn(function() veche.sleep(at) print(at) end) end
          local task = veche.spawn(error, 'never')
          task:cancel()
          return 'yes'
        end
        return app",
    );
    let path = format!("/{}", "я".repeat(300));
    bench.vm.request(ANN, request("POST", &path, ""), bench.now);
    bench.pass_time();
    let effects = logged(&mut bench);
    let lines: Vec<&str> = effects.iter().map(|(line, _)| line.as_str()).collect();
    assert_eq!(lines, ["1", "2", "3"]);
    for (_, about) in &effects {
        assert_eq!(about.connection.as_deref(), Some("0.3.1"));
        assert_eq!(about.method.as_deref(), Some("POST"));
        // The path in the log is shortened if it is long.
        let expected = format!("/{}…", "я".repeat(127));
        assert_eq!(about.path.as_deref(), Some(expected.as_str()));
    }
    assert_eq!(bench.vm.log_contexts(), 0, "nothing is left of them");
}

#[test]
fn contexts_of_hooks_that_are_refused_or_withdrawn_are_not_kept() {
    let mut bench = Bench::new(
        "local veche = require 'veche'
        local app = { centrifuge = {} }
        function app.centrifuge.publish() veche.sleep(100) return {} end
        return app",
    );
    bench.vm.decide(7, &asked(), bench.now);
    assert_eq!(bench.vm.log_contexts(), 1);
    bench.vm.fail_undecided(7, bench.now);
    assert_eq!(bench.vm.log_contexts(), 0);
    // The script has no handler for this hook.
    let asked = AppHookRequest {
        hook: Hook::Rpc,
        ..asked()
    };
    bench.vm.decide(8, &asked, bench.now);
    assert_eq!(bench.vm.log_contexts(), 0);
}
