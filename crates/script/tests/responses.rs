//! Tests of the responses of handlers and their limits.

mod support;

use std::time::Duration;

use support::{ANN, Bench, limits, request};
use veche_script::{Effect, ScriptLimits};

#[test]
fn a_response_that_is_too_large_is_an_error() {
    let mut bench = Bench::with(
        "local piece, app = ('x'):rep(16 * 1024 * 1024), {}
        function app.request(req)
          local pieces = {}
          for i = 1, 4 do pieces[i] = piece end
          if req.path == '/large' then pieces[5] = 'y' end
          return table.concat(pieces)
        end
        return app",
        ScriptLimits {
            memory_bytes_max: 512 << 20,
            cpu_budget: Duration::from_secs(5),
            ..limits()
        },
    );
    bench.vm.request(ANN, request("GET", "/", ""), bench.now);
    let effects = bench.effects();
    let [(_, Effect::Respond { status, body, .. })] = &effects[..] else {
        panic!("{} effects", effects.len())
    };
    assert_eq!((*status, bench.bytes(*body).len()), (200, 64 << 20));

    bench
        .vm
        .request(ANN, request("GET", "/large", ""), bench.now);
    bench.advance(1);
    let effects = bench.effect_lines();
    assert!(
        effects[0].starts_with("Error: the body of the response, 67108865 bytes, is too large"),
        "{}",
        effects[0]
    );
    let plain = "Content-Type: text/plain; charset=utf-8";
    assert_eq!(
        effects[1..],
        [format!("respond ann 500 [{plain}] internal error\n")]
    );
}
