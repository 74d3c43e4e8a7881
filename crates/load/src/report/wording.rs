//! The wording of each kind of run: the nouns for sent and received items and for the latency.

use super::model::{Report, Settings};
use super::units::{bytes, many, rate, seconds};

/// The wording for one kind of run.
pub(crate) struct RunWording {
    /// The noun for the sent items, in the plural.
    pub(crate) sent: &'static str,
    /// The noun for the received items, in the plural.
    pub(crate) received: &'static str,
    /// The latency's meaning.
    pub(crate) latency: &'static str,
}

impl RunWording {
    pub(crate) fn of(kind: &str, open_loop: bool) -> Self {
        let (sent, received) = match kind {
            "http" => ("requests", "responses"),
            "broadcast" | "push" => ("publications", "deliveries"),
            "shootout" => ("messages", "round trips"),
            "script" => ("actions", "actions"),
            _ => ("messages", "answers"),
        };
        let latency = match (received, open_loop) {
            ("responses", true) => {
                "from the scheduled time of a request until the last byte of its response"
            }
            ("responses", false) => "from sending a request until the last byte of its response",
            ("deliveries", true) => "from the scheduled time of a publication until its delivery",
            ("deliveries", false) => "from sending a publication until each of its deliveries",
            ("actions", _) => "from the beginning of an action until its end",
            (_, true) => "from the scheduled time of a message until its answer",
            (_, false) => "from sending a message until its answer",
        };
        Self {
            sent,
            received,
            latency,
        }
    }
}

/// Describes the run by its kind, size, connections and rate. The sentence has no end, so that the
/// caller can continue it.
pub(crate) fn run_description(report: &Report) -> String {
    let settings = &report.settings;
    let connections = many(settings.connections, "connection");
    let size = settings
        .size_bytes
        .map(|size| format!(" of {}", bytes(size as f64)))
        .unwrap_or_default();
    match report.kind.as_str() {
        "storm" => {
            let pace = settings.rate.map_or_else(
                || "as fast as possible".to_owned(),
                |rate_asked| format!("{} a second", rate(rate_asked)),
            );
            format!("{connections}, opened {pace}, then one message{size} and its answer on each")
        }
        "echo" => format!(
            "Messages{size} and their echoes on {connections}, {}",
            pace(settings, "messages")
        ),
        "broadcast" => format!(
            "Publications{size} to subscribers, {connections}, {}",
            pace(settings, "publications")
        ),
        "push" => format!(
            "Pushes{size} from the back end to {connections}, {}",
            pace(settings, "pushes")
        ),
        "http" => format!(
            "HTTP requests on {connections}, {}",
            pace(settings, "requests")
        ),
        "shootout" => {
            "The websocket shootout: round trips of one message among more and more clients"
                .to_owned()
        }
        "script" => format!(
            "{} of a script, each at its own rate",
            many(settings.connections, "user")
        ),
        "scenario" => format!(
            "A scenario of {}",
            many(report.phases.len() as u64, "phase")
        ),
        _ => format!("{connections}, {}", pace(settings, "messages")),
    }
}

/// Describes the duration and the warm-up.
pub(crate) fn span(report: &Report) -> String {
    let measured = match (report.interrupted, report.settings.duration_s) {
        (true, Some(planned)) => {
            format!(
                "Interrupted: measured for {} of the {} planned",
                seconds(report.seconds),
                seconds(planned)
            )
        }
        (true, None) => format!("Interrupted: measured for {}", seconds(report.seconds)),
        (false, _) => format!("Measured for {}", seconds(report.seconds)),
    };
    if report.settings.warmup_s > 0.0 {
        let warmup = seconds(report.settings.warmup_s);
        format!(
            "{measured} after a warm-up of {warmup}, which counts only for connections, errors, unsolicited messages and the ledger."
        )
    } else {
        format!("{measured}, without a warm-up.")
    }
}

fn pace(settings: &Settings, what: &str) -> String {
    match (settings.rate, settings.inflight) {
        (Some(asked), _) => format!("open loop at {} {what} a second in all", rate(asked)),
        (None, Some(1)) => "closed loop, one in flight on each".to_owned(),
        (None, Some(inflight)) => format!("closed loop, {inflight} in flight on each"),
        (None, None) => "as fast as the answers arrive".to_owned(),
    }
}
