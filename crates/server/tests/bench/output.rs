//! Tests reports that are written as files for other programs.

use std::fs;

use crate::known::http::{After, response, serve_http};
use crate::{bench, scenario_file};

/// Returns the sum of a column of a CSV file with a header.
fn sum(text: &str, column: &str) -> u64 {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    let at = header
        .iter()
        .position(|name| *name == column)
        .expect("the column");
    lines
        .map(|line| line[at].parse::<u64>().expect("a number"))
        .sum()
}

#[test]
fn percentiles_and_timelines_are_written() {
    let address = serve_http(|_, _, _| (response("200 OK", ""), After::Stay));
    let url = format!("http://{address}/");
    let folder = std::env::temp_dir().join(format!("veche-bench-output-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let (hgrm, csv) = (path("latency.hgrm"), path("timeline.csv"));
    let run = ["http", &url, "-n", "2", "-d", "300ms", "--warmup", "0s"];
    let outcome = bench(&[&run[..], &["--hgrm", &hgrm, "--csv", &csv]].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    let text = fs::read_to_string(&csv).expect("it was written");
    assert_eq!(
        sum(&text, "received"),
        outcome.count("/messages/received_in_time")
    );
    let text = fs::read_to_string(&hgrm).expect("it was written");
    let total = text.rsplit("Total count    =").next().expect("a footer");
    let total = total.trim_end_matches(|c: char| !c.is_ascii_digit()).trim();
    assert_eq!(total.parse().ok(), Some(outcome.count("/latency_us/count")));
    let last = text
        .lines()
        .rfind(|line| !line.starts_with('#'))
        .expect("a line");
    let fields: Vec<&str> = last.split_whitespace().collect();
    assert_eq!(fields[1..], ["1.000000000000", total]);
    let scenario = scenario_file(&format!(
        "allow_bottleneck = true\nurl = \"{url}\"\nconnections = 1\nwarmup = \"0s\"\nduration = \"100ms\"\n\
         [[phase]]\nkind = \"http\"\nname = \"a\"\n[[phase]]\nkind = \"http\"\nname = \"b\"\n"
    ));
    assert_eq!(scenario.code, Some(0), "{scenario:#?}");
    let outcome = bench(&[&run[..], &["--csv", &path("none/timeline.csv")]].concat());
    assert_eq!(outcome.code, Some(5), "{outcome:#?}");
    fs::remove_dir_all(&folder).expect("it is ours");
}
