//! Tests of services: scripts that run without clients, and how they end.

mod support;

use support::Bench;
use veche_script::ServiceState;

#[test]
fn it_runs_knows_which_it_is_and_is_over() {
    let mut bench = Bench::service(
        "local veche, service = require 'veche', {}
        function service.run(instance, instances)
          print(instance, instances, veche.stopping())
          veche.sleep(5)
          print('done')
        end
        return service",
    );
    assert_eq!(bench.effect_lines(), ["2\t3\tfalse"]);
    assert_eq!(bench.vm.service(), ServiceState::Runs);
    bench.pass_time();
    assert_eq!(bench.effect_lines(), ["done"]);
    assert_eq!(bench.vm.service(), ServiceState::Over);
    assert!(bench.vm.is_at_rest());
}

#[test]
fn what_run_leaves_behind_belongs_to_it() {
    let mut bench = Bench::service(
        "local veche = require 'veche'
        return { run = function()
          veche.timer.after(5, print, 'later')
        end }",
    );
    bench.advance(1000);
    assert_eq!(bench.vm.service(), ServiceState::Runs);
    bench.advance(4000);
    assert_eq!(bench.effect_lines(), ["later"]);
    assert_eq!(bench.vm.service(), ServiceState::Over);
}

#[test]
fn it_fails_alone_and_its_coroutines_can_be_ended() {
    let mut bench = Bench::service(
        "local veche = require 'veche'
        return { run = function()
          veche.timer.every(1, print, 'tick')
          veche.spawn(function() end)
          veche.sleep(2.5)
          veche.spawn(print, 'never')
          error('oh')
        end }",
    );
    bench.advance(1000);
    bench.advance(1500);
    let effects = bench.effect_lines();
    assert_eq!(effects[..2], ["tick", "tick"]);
    assert!(
        effects[2].contains("app.lua:7: oh\nstack traceback:"),
        "{effects:?}"
    );
    assert_eq!(bench.vm.service(), ServiceState::Failed);
    bench.vm.abort();
    bench.effect_lines();
    bench.advance(10_000);
    assert_eq!(bench.effect_lines(), [""; 0]);
    assert!(bench.vm.is_at_rest());
    assert_eq!(bench.vm.deadline_ms(), u64::MAX);
}

#[test]
fn it_is_asked_to_stop() {
    let mut bench = Bench::service(
        "local veche, service = require 'veche', {}
        function service.run()
          while not veche.stopping(60) do print('work') end
          veche.sleep(1)
          print('tidied', veche.stopping(), veche.stopping(9))
        end
        function service.stop() print('stop') veche.sleep(0.5) print('stopped') end
        return service",
    );
    bench.advance(60_000);
    bench.advance(30_000);
    assert_eq!(bench.effect_lines(), ["work"]);
    bench.vm.stop(bench.now);
    assert_eq!(bench.effect_lines(), ["stop"]);
    assert!(bench.vm.is_stopping());
    bench.vm.stop(bench.now);
    bench.advance(500);
    assert_eq!(bench.effect_lines(), ["stopped"]);
    assert!(!bench.vm.is_stopping());
    assert_eq!(bench.vm.service(), ServiceState::Runs);
    bench.advance(500);
    assert_eq!(bench.effect_lines(), ["tidied\ttrue\ttrue"]);
    assert_eq!(bench.vm.service(), ServiceState::Over);
}

#[test]
fn a_wait_for_the_end_can_be_cancelled() {
    let effects = Bench::run(
        "local task = veche.spawn(function() print(pcall(veche.stopping, 60)) end)
        veche.sleep(0)
        task:cancel()
        for _, bad in ipairs { -1, 'x', {}, 1e300, 0 / 0 } do print(select(2, pcall(veche.stopping, bad))) end
        print(pcall(table.sort, { 2, 1 }, function() veche.stopping(1) end))",
    );
    assert!(
        effects[..5]
            .iter()
            .all(|line| line.contains("bad argument #1 to 'stopping'")),
        "{effects:#?}"
    );
    assert!(effects[5].contains("can't wait here"), "{effects:#?}");
    assert!(
        effects[6].starts_with("false\t") && effects[6].ends_with("cancelled"),
        "{effects:#?}"
    );
}

#[test]
fn an_invalid_service_is_reported() {
    let error = std::panic::catch_unwind(|| Bench::service("return {}"));
    assert!(error.is_err());
    let mut bench = Bench::service("return { run = function() end, message = function() end }");
    assert!(
        bench.effect_lines()[0]
            .contains("service.message is never called: a service's functions are stop, run"),
    );
    let mut bench = Bench::new("return { open = print, run = print }");
    assert!(bench.effect_lines()[0].contains("app.run is never called"));
}
