//! Tests of parsing the scenario file, and of the error messages about it.

#[path = "../../../../../tests/skip.rs"]
mod skip;

use std::time::Duration;

use crate::loads::LoadPlan;

use super::super::figures::FIGURES;
use super::*;

fn scenario(text: &str) -> Scenario {
    parse(Path::new("dir/x.toml"), text, &UrlOverride::default())
        .unwrap_or_else(|report| panic!("{report}"))
}

fn problems(text: &str) -> Vec<String> {
    problems_elsewhere(text, &UrlOverride::default())
}

fn problems_elsewhere(text: &str, elsewhere: &UrlOverride) -> Vec<String> {
    let report = parse(Path::new("x.toml"), text, elsewhere).expect_err("it is no good");
    report.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn phases_have_the_defaults_they_have_a_use_for() {
    let scenario = scenario(
        r#"
        url = "ws://127.0.0.1:1/ws"
        connections = 7
        duration = "3s"
        size = 100
        inflight = 4
        [promise]
        errors = 0
        [[phase]]
        name = "rise"
        kind = "echo"
        rate = [100, 5000]
        churn = 5
        promise.latency = { p99 = "<= 1s", max = "<= 2s" }
        [[phase]]
        kind = "http"
        url = "http://127.0.0.1:1/"
        together = true
        connections = 1
        allow_bottleneck = true
        [[phase]]
        name = "hi"
        kind = "echo"
        message = "hello"
        "#,
    );
    assert_eq!(scenario.promises.len(), 1);
    let [rise, http, hi] = &scenario.phases[..] else {
        panic!("three phases");
    };
    assert_eq!((rise.name.as_str(), http.name.as_str()), ("rise", "http"));
    assert!(http.together && http.allow_bottleneck && !rise.together && !rise.allow_bottleneck);
    assert_eq!(rise.promises.len(), 2);
    assert_eq!((rise.plan.clients(), http.plan.clients()), (7, 1));
    let three = Duration::from_secs(3).as_nanos() as u64;
    assert_eq!(http.plan.duration_ns, Some(three));
    let LoadPlan::Echo(echo) = &rise.plan.load else {
        panic!("an echo");
    };
    assert_eq!(
        (echo.rate, echo.rate_to, echo.churn),
        (Some(100.0), Some(5000.0), Some(5.0))
    );
    assert!(matches!(&http.plan.load, LoadPlan::Http(http) if http.inflight == 4));
    // A phase with a fixed message ignores the default size.
    assert!(matches!(&hi.plan.load, LoadPlan::Echo(echo) if echo.rate.is_none()));
}

#[test]
fn all_errors_are_reported_at_once() {
    let found = problems(
        r#"url = "ws://127.0.0.1:1/"
conections = 10
[promise]
latency.p9 = "<= 1ms"
[[phase]]
name = "a"
kind = "echos"
[[phase]]
kind = "echo"
size = "many"
method = "GET"
promise.ledger.lost = 0
[[phase]]
connections = 5
[[phase]]
kind = "push"
publish = "tcp://127.0.0.1:1"
body = "{data}"
[[phase]]
name = "b"
kind = "broadcast"
[[phase]]
name = "c"
kind = "storm"
url = "tcp://127.0.0.1:1"
allow_bottleneck = 1
"#,
    );
    let expected = [
        r#"x.toml:2:1: unknown key "conections"; did you mean "connections"?"#,
        r#"x.toml:4:9: unknown figure "latency.p9"; did you mean "latency.p90"?"#,
        r#"x.toml:7:8: kind: expected "storm", "echo", "broadcast", "push" or "http", found "echos"; did you mean "echo"?"#,
        r#"x.toml:10:8: size: expected a size such as "20" or "8KiB", found "many""#,
        r#"x.toml:11:1: unknown key "method" in a phase of kind "echo"; this key belongs to phases of kind http"#,
        r#"x.toml:12:16: this figure is not measured by a phase of kind "echo", only by "broadcast" or "push""#,
        r#"x.toml:13:1: kind is missing: "storm", "echo", "broadcast", "push" or "http""#,
        r#"x.toml:18:8: body: must contain {i}, the number of the receiver"#,
        r#"x.toml:19:1: publish is missing"#,
        r#"x.toml:25:7: "tcp://127.0.0.1:1": expected ws:// or wss://"#,
        r#"x.toml:26:20: allow_bottleneck: expected true or false, found 1"#,
    ];
    assert_eq!(found, expected, "{found:#?}");
}

#[test]
fn files_that_are_no_scenarios() {
    assert_eq!(problems(""), ["x.toml: the scenario has no [[phase]]"]);
    assert_eq!(
        problems("[phase]\nkind = \"echo\"\n"),
        ["x.toml:1:1: expected tables [[phase]], found a table"]
    );
    assert_eq!(
        problems("url = ws://h/\n[[phase]]\nkind = \"storm\"\n")[0],
        "x.toml:1:7: not TOML: strings need quotes: \"ws://h/\""
    );
    let two = "url = \"ws://127.0.0.1:1/\"\n[[phase]]\nkind = \"storm\"\n[[phase]]\nkind = \"storm\"\ntogether = true\n";
    assert_eq!(
        problems(two),
        ["x.toml:4:1: two phases are named \"storm\": give each its own name"]
    );
    let both = "[[phase]]\nkind = \"echo\"\nurl = \"http://127.0.0.1:1/\"\nrate = 1\ninflight = 2\ntogether = true\n";
    assert_eq!(
        problems(both),
        ["x.toml:5:12: inflight and rate exclude each other"]
    );
    let scheme = "[[phase]]\nkind = \"echo\"\nurl = \"http://127.0.0.1:1/\"\n";
    assert_eq!(
        problems(scheme),
        ["x.toml:3:7: \"http://127.0.0.1:1/\": expected ws:// or wss://"]
    );
    let whole =
        "[promise]\nledger.lost = 0\n[[phase]]\nkind = \"storm\"\nurl = \"ws://127.0.0.1:1/\"\n";
    assert_eq!(
        problems(whole),
        [
            "x.toml:2:8: no phase measures this figure: add a phase of kind \"broadcast\" or \"push\""
        ]
    );
    for kind in ["storm", "push"] {
        let nowhere = format!("[[phase]]\nkind = \"{kind}\"\n");
        let found = problems(&nowhere).concat();
        assert!(
            found.starts_with("x.toml:1:1: ") && found.contains("url"),
            "{found}"
        );
        assert!(
            found.ends_with("missing") && !found.contains('<'),
            "{found}"
        );
    }
    let first = "[[phase]]\nkind = \"storm\"\nurl = \"ws://127.0.0.1:1/\"\ntogether = true\n";
    assert_eq!(
        problems(first),
        ["x.toml:1:1: together: there is no phase before this one"]
    );
}

/// Each of the two phases alone fits into the limit on descriptors; together they exceed it.
#[test]
fn phases_that_run_together_share_descriptors() {
    let Some(maximum) = veche_net::descriptors::raise().expect("our own limit").to else {
        return skip::skip("no limit on descriptors");
    };
    let share = maximum / 5 * 3;
    let text = |together: bool| {
        format!(
            "url = \"ws://127.0.0.1:1/\"\nconnections = {share}\n[[phase]]\nname = \"a\"\nkind = \"storm\"\n\
             [[phase]]\nname = \"b\"\nkind = \"storm\"\ntogether = {together}\n"
        )
    };
    assert_eq!(scenario(&text(false)).phases.len(), 2);
    let found = problems(&text(true)).concat();
    let words = format!(
        "x.toml:6:1: {} connections of phases that run together in one process: a process may have {maximum} descriptors; \
         give a phase processes 2 or more",
        2 * share
    );
    assert_eq!(found, words);
}

#[test]
fn its_urls_can_lead_elsewhere() {
    let text = r#"url = "ws://no-such-host.invalid/ws?user=b{i}"
[[phase]]
name = "many"
kind = "storm"
url = ["ws://no-such-host.invalid/a", "wss://no-such-host.invalid/b"]
[[phase]]
kind = "http"
url = "http://no-such-host.invalid:81/page"
[[phase]]
kind = "push"
publish = "tcp://no-such-host.invalid:1234"
"#;
    let elsewhere = UrlOverride {
        url: Some("ws://127.0.0.1:9".parse().expect("a place")),
        publish: vec!["tcp://127.0.0.1:7".parse().expect("a place")],
    };
    let scenario = parse(Path::new("x.toml"), text, &elsewhere).expect("all hosts are known");
    let targets = scenario
        .phases
        .iter()
        .flat_map(|phase| &phase.plan.endpoints);
    let targets: Vec<String> = targets
        .map(|endpoint| &endpoint.target)
        .map(|target| {
            let path = target.path.as_str();
            format!("{}://{}{path}", target.scheme, target.addresses[0])
        })
        .collect();
    let expected = [
        "ws://127.0.0.1:9/a",
        "ws://127.0.0.1:9/b",
        "http://127.0.0.1:9/page",
        "ws://127.0.0.1:9/ws?user=b{i}",
        "tcp://127.0.0.1:7/",
    ];
    assert_eq!(targets, expected);

    let half = UrlOverride {
        publish: Vec::new(),
        ..elsewhere
    };
    assert_eq!(
        problems_elsewhere(text, &half),
        [
            "x.toml:11:11: publish: tcp://no-such-host.invalid:1234 would not be redirected: --url requires --publish as well"
        ]
    );
}

/// The guide lists every key and every figure, each in its table.
#[test]
fn the_guide_is_complete() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/scenarios.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let rows: Vec<&str> = guide.lines().filter(|line| line.starts_with('|')).collect();
    let has = |row: &str, word: &str| row.contains(&format!("`{word}`"));
    let words = KINDS.map(CommandFlags::of);
    for key in words.iter().flat_map(CommandFlags::keys) {
        assert!(rows.iter().any(|row| has(row, &key)), "no row for {key:?}");
    }
    for key in OF_A_PHASE {
        assert!(rows.iter().any(|row| has(row, key)), "no row for {key:?}");
    }
    for figure in &FIGURES {
        let (group, name) = figure
            .path
            .split_once('.')
            .unwrap_or((figure.path, figure.path));
        assert!(
            rows.iter().any(|row| has(row, group) && has(row, name)),
            "no row for {}",
            figure.path
        );
    }
}
