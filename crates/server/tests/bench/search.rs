//! The search for the highest rate, and runs that stop at the first broken promise.

use crate::known::http::{After, response, serve_http};
use crate::known::serve_at_most;
use crate::{bench, scenario_file};

#[test]
fn the_highest_rate_is_found() {
    let url = format!("ws://{}/", serve_at_most(1000));
    let outcome = bench(&[
        "echo",
        &url,
        "-n",
        "8",
        "--rate",
        "50",
        "--find-rate",
        "messages.unanswered == 0",
        "-d",
        "400ms",
        "--warmup",
        "0s",
    ]);
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    let rate = |path: &str| outcome.at(path).as_f64().expect("a rate");
    let (held, broken) = (rate("/search/rate"), rate("/search/broken_at"));
    // The server's capacity is 1,000 per second. A short run can also pass at a somewhat higher rate, since a backlog
    // of 0.1 s at the end of the run is not noticed.
    assert!(held <= 1000.0 * 1.5 && broken > held, "{held} {broken}");
    assert!(broken <= held * 1.05 || held < 1000.0, "{held} {broken}");
    assert_eq!(rate("/settings/rate"), held);
    let steps = outcome.at("/search/steps").as_array().expect("steps");
    assert!(
        steps
            .iter()
            .any(|step| step["held"] == false && !step["broken"].is_null())
    );
}

#[test]
fn no_rate_holds_an_impossible_promise() {
    let url = format!("ws://{}/", serve_at_most(1000));
    let search = ["echo", &url, "-n", "2", "-d", "20ms", "--warmup", "0s"];
    let promise = ["--rate", "100", "--find-rate", "latency.p99 < 1us"];
    let outcome = bench(&[&search[..], &promise].concat());
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    assert!(
        outcome
            .stderr
            .contains("no rate met the objectives, not even the lowest one, "),
        "{outcome:#?}"
    );
    assert!(outcome.at("/search/rate").is_null());
    for (promise, words) in [
        ("latency.p98 < 1ms", "unknown figure \"latency.p98\""),
        (
            "ledger.lost == 0",
            "a run of kind echo does not measure this figure",
        ),
        ("latency.p99", "expected a figure and its bound"),
    ] {
        let outcome = bench(&[&search[..], &["--rate", "100", "--find-rate", promise]].concat());
        assert_eq!(outcome.code, Some(2), "{outcome:#?}");
        assert!(outcome.stderr.contains(words), "{outcome:#?}");
    }
    let outcome = bench(
        &[
            &search[..],
            &["--rate", "1..2", "--find-rate", "errors == 0"],
        ]
        .concat(),
    );
    assert_eq!(outcome.code, Some(2), "{outcome:#?}");
}

#[test]
fn a_scenario_stops_at_a_promise_that_is_broken_for_good() {
    let address = serve_http(|_, number, _| {
        let status = if number < 20 { "200 OK" } else { "500 Oh" };
        (response(status, ""), After::Stay)
    });
    let file = |stop: bool, duration: &str| {
        scenario_file(&format!(
            "allow_bottleneck = true\nstop_on_broken = {stop}\nurl = \"http://{address}/\"\nconnections = 1\n\
             warmup = \"0s\"\nduration = \"{duration}\"\n\
             [[phase]]\nkind = \"http\"\nrate = 100\npromise.errors = \"<= 10\"\n\
             [[phase]]\nkind = \"http\"\nname = \"next\"\npromise.errors = \"<= 10\"\n"
        ))
    };
    let outcome = file(true, "60s");
    assert_eq!(outcome.code, Some(8), "{outcome:#?}");
    assert_eq!(outcome.at("/stopped"), true);
    assert_eq!(outcome.at("/interrupted"), false);
    assert_eq!(outcome.at("/phases").as_array().map(Vec::len), Some(1));
    let seconds = outcome.at("/phases/0/seconds").as_f64().expect("seconds");
    assert!(seconds < 30.0, "{seconds}");
    let broken = outcome.broken();
    assert!(
        broken.iter().any(|line| line.starts_with("errors <= 10: ")),
        "{broken:#?}"
    );
    assert!(
        broken
            .iter()
            .any(|line| line.starts_with("the phase ran to its end: ")),
        "{broken:#?}"
    );
    // Without the option that stops at the first broken promise, all phases run.
    let outcome = file(false, "400ms");
    assert_eq!(outcome.at("/stopped"), false);
    assert_eq!(outcome.at("/phases").as_array().map(Vec::len), Some(2));
}
