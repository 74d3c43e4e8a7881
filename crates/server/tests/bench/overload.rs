//! What is promised of a server that is slower than the rate.

use std::fs;

use crate::known::serve_at_most;
use crate::{Outcome, bench};

/// A scenario of one phase.
fn scenario(name: &str, phase: &str) -> Outcome {
    let name = format!("veche-bench-{name}-{}.toml", std::process::id());
    let file = std::env::temp_dir().join(name);
    let text = format!("allow_bottleneck = true\n[[phase]]\n{phase}");
    fs::write(&file, text).expect("a temporary folder");
    let outcome = bench(&["scenario", file.to_str().expect("UTF-8")]);
    let _ = fs::remove_file(&file);
    outcome
}

#[test]
fn promises_of_an_overloaded_server_are_broken() {
    let url = format!("ws://{}/", serve_at_most(500));
    let phase = |promise: &str| {
        format!(
            "kind = \"echo\"\nurl = \"{url}\"\nconnections = 8\nrate = 2000\nduration = \"500ms\"\n\
             warmup = \"0s\"\n{promise}\n"
        )
    };
    let outcome = scenario(
        "overload",
        &phase("promise.messages.per_second = \">= 1990\""),
    );
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    let checks = outcome.at("/phases/0/checks").as_array().expect("checks");
    let broken: Vec<&str> = checks
        .iter()
        .filter(|check| check["passed"] == false)
        .filter_map(|check| check["promise"].as_str())
        .collect();
    assert_eq!(
        broken,
        [
            "messages.per_second >= 1990",
            "the rate asked for is reached"
        ]
    );
    // However lenient: a latency of a queue that grows is none.
    let outcome = scenario("lenient", &phase("promise.latency.p99 = \"<= 1h\""));
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    // What it was asked for is said, and nobody promised anything about how soon.
    let outcome = scenario("counts", &phase("promise.messages.unanswered = 0"));
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    assert_eq!(outcome.at("/phases/0/messages/rate_reached"), false);
}
