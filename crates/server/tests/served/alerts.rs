//! Tests the alert rules in packaging/: Prometheus accepts them, and repeated kills of the server process fire the
//! alert for a crash loop.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::metrics::Metrics;
use crate::support::{Server, USUAL, get, process, until};

/// Returns the path of the alert rules.
pub(crate) fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus/veche.rules.yml")
}

/// Runs promtool, which has to succeed.
#[track_caller]
fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).output();
    let output = output.expect("Debian's package prometheus (tests/setup/packages.sh test)");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}{errors}");
}

#[test]
fn prometheus_accepts_the_rules() {
    promtool(&["check", "rules", rules().to_str().expect("text")]);
}

#[test]
fn prometheus_finds_nothing_wrong_with_the_metrics() {
    let server = Server::start(USUAL);
    let response = get(server.internal, "/metrics");
    let text = response.text();
    assert!(
        text.contains("# TYPE veche_connections_accepted_total counter\n"),
        "{text}"
    );
    let file = server.folder.join("metrics.txt");
    fs::write(&file, text).expect("written");
    let output = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(fs::File::open(&file).expect("it is there"))
        .output()
        .expect("Debian's package prometheus (tests/setup/packages.sh test)");
    let printed = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && printed.is_empty(),
        "{}",
        String::from_utf8_lossy(&printed)
    );
}

/// Asserts how many crash-loop alerts fire after the last value of `restarts`, which are values of
/// the restarts counter at intervals of seven seconds.
#[track_caller]
fn fires(server: &Server, restarts: &[u64], expected: u32) {
    let values: Vec<String> = restarts.iter().map(u64::to_string).collect();
    let at_s = 7 * (restarts.len() - 1);
    let samples = match expected {
        0 => "[]".to_owned(),
        count => format!("[{{labels: \"{{}}\", value: {count}}}]"),
    };
    let test = format!(
        "rule_files: [{}]\nevaluation_interval: 7s\ntests:\n- interval: 7s\n  input_series:\n  - series: \
         'veche_restarts_total{{instance=\"a\",job=\"veche\",reason=\"signal\"}}'\n    values: '{}'\n  \
         promql_expr_test:\n  - expr: count(ALERTS{{alertname=\"VecheCrashLoop\",alertstate=\"firing\"}})\n    \
         eval_time: {at_s}s\n    exp_samples: {samples}\n",
        rules().display(),
        values.join(" ")
    );
    let file = server.folder.join("alerts.test.yml");
    fs::write(&file, test).expect("written");
    promtool(&["test", "rules", file.to_str().expect("text")]);
}

#[test]
fn five_kills_in_35_seconds_fire_the_crash_loop_alert() {
    let server = Server::start(USUAL);
    let restarts = || {
        let metrics = Metrics::try_scrape(server.internal)?;
        Some(metrics.sum("veche_restarts_total", &["reason=\"signal\""]) as u64)
    };
    let mut scraped = vec![restarts().expect("it serves")];
    for kills in 1..=5 {
        process::kill(server.pid(), rustix::process::Signal::KILL);
        until("the next process", || restarts() == Some(kills));
        scraped.push(kills);
    }
    assert_eq!(scraped, [0, 1, 2, 3, 4, 5]);
    fires(&server, &scraped, 1);
    fires(&server, &[0, 0, 1, 1, 1, 1], 0);
    let metrics = Metrics::scrape(server.internal);
    for reason in ["exit", "hang"] {
        let label = format!("reason=\"{reason}\"");
        assert_eq!(metrics.sum("veche_restarts_total", &[&label]), 0.0);
    }
}

#[test]
fn metrics_of_the_process_are_those_of_the_system() {
    let server = Server::start(USUAL);
    let metrics = Metrics::scrape(server.internal);
    let sum = |name: &str| metrics.sum(name, &[]);
    let stat = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", server.pid()));
    let limits = stat("limits").expect("it runs");
    let limit = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let limit = limit.and_then(|line| line.split_whitespace().nth(3));
    assert_eq!(Some(sum("process_max_fds").to_string().as_str()), limit);
    let open = sum("process_open_fds");
    let counted = process::descriptors(server.pid()) as f64;
    assert!((open - counted).abs() <= 8.0, "{open} and {counted}");
    assert!(sum("process_cpu_seconds_total") > 0.0);
    let age = now_s() - sum("process_start_time_seconds");
    // The test's clock counts whole seconds, so the age may be negative.
    assert!((-1.0..60.0).contains(&age), "{age} s");
    let status = server.status().expect("a status");
    let max = status["report"]["connections_max"].as_f64();
    assert_eq!(Some(sum("veche_connections_max")), max);
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    assert_eq!(metrics.sum("veche_build_info", &[version]), 1.0);
}

fn now_s() -> f64 {
    crate::jwt::now_s() as f64
}
