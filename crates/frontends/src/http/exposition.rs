//! The two text formats of `/metrics`: OpenMetrics and the older Prometheus format.

use std::fmt::Write as _;

use veche_proto::http::Head;

/// Content type of the OpenMetrics text format.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the Prometheus text format.
pub(super) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns whether the client accepts OpenMetrics, as Prometheus does. Other clients get the older format of
/// Prometheus, which all tools support.
pub(super) fn accepts_open_metrics(head: &Head<'_>) -> bool {
    head.header("accept")
        .is_some_and(|accept| accept.contains("application/openmetrics-text"))
}

/// Converts the OpenMetrics text format to the Prometheus format, in which the name of a family
/// includes the suffix of its samples.
pub(super) fn to_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), _, Some(words)) => help = Some(words),
            (Some("TYPE"), Some(family), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    _ => ("", kind),
                };
                // Writing to a string can't fail.
                if let Some(help) = help.take() {
                    let _ = writeln!(text, "# HELP {family}{suffix} {help}");
                }
                let _ = writeln!(text, "# TYPE {family}{suffix} {kind}");
            }
            // The format of Prometheus has no `UNIT` line and no end marker.
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_names_of_their_samples() {
        let open_metrics = "# HELP a_pushes Commands.\n# TYPE a_pushes counter\na_pushes_total 3\n\
            # HELP a_build Version.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
            # HELP a_seconds Time.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\na_seconds_sum 1.0\n\
            # EOF\n";
        let prometheus = "# HELP a_pushes_total Commands.\n# TYPE a_pushes_total counter\na_pushes_total 3\n\
            # HELP a_build_info Version.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
            # HELP a_seconds Time.\n# TYPE a_seconds histogram\na_seconds_sum 1.0\n";
        assert_eq!(to_prometheus(open_metrics), prometheus);
    }
}
