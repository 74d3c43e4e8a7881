//! Objectives (`promise`) for a server that can't keep up with the requested rate.

use crate::known::serve_at_most;
use crate::scenario;

#[test]
fn promises_of_an_overloaded_server_are_broken() {
    let url = format!("ws://{}/", serve_at_most(500));
    let phase = |promise: &str| {
        format!(
            "kind = \"echo\"\nurl = \"{url}\"\nconnections = 8\nrate = 2000\nduration = \"500ms\"\n\
             warmup = \"0s\"\n{promise}\n"
        )
    };
    let outcome = scenario(&phase("promise.messages.per_second = \">= 1990\""));
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    let broken = outcome.broken();
    let [speed, rate] = &broken[..] else {
        panic!("{broken:#?}")
    };
    assert!(
        speed.starts_with("messages.per_second >= 1990: "),
        "{speed}"
    );
    assert!(
        rate.starts_with("the requested rate was reached: "),
        "{rate}"
    );
    // Even a very lenient promise about latency fails if the requested rate is not reached.
    let outcome = scenario(&phase("promise.latency.p99 = \"<= 1h\""));
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    // The run passes, because its promise is not about time; the report shows that the requested rate was not reached.
    let outcome = scenario(&phase("promise.messages.unanswered = 0"));
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    assert_eq!(outcome.at("/phases/0/messages/rate_reached"), false);
}
