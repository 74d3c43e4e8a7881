//! A minimal parser of the OpenMetrics text format, which panics if a text violates the format.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};

use super::Http;

/// The header with which Prometheus requests OpenMetrics.
const ACCEPT: &str = "Accept: application/openmetrics-text;version=1.0.0\r\n";

/// The samples of one scrape, by name and labels as they are written in the response.
pub(crate) struct Metrics(HashMap<String, f64>);

impl Metrics {
    pub(crate) fn scrape(internal: SocketAddr) -> Self {
        Self::try_scrape(internal).expect("the server is there")
    }

    /// Scrapes a server that may not be running.
    pub(crate) fn try_scrape(internal: SocketAddr) -> Option<Self> {
        let mut http = Http::over(TcpStream::connect(internal).ok()?);
        let response = http.request("GET", "/metrics", ACCEPT, b"").ok()?;
        (response.status == 200).then(|| Self::parse(response.text()))
    }

    /// Parses the OpenMetrics text format; panics if it is malformed.
    pub(crate) fn parse(text: &str) -> Self {
        let mut samples = HashMap::new();
        let mut families = Vec::new();
        let text = text
            .strip_suffix("# EOF\n")
            .expect("the text ends with its mark");
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (kind, family) = (
                    words.next().expect("a kind"),
                    words.next().expect("a family"),
                );
                assert!(["HELP", "TYPE", "UNIT"].contains(&kind), "{line}");
                assert!(words.next().is_some_and(|rest| !rest.is_empty()), "{line}");
                families.push(family.to_owned());
                continue;
            }
            let (name, value) = line
                .rsplit_once(' ')
                .unwrap_or_else(|| panic!("no value: {line:?}"));
            let family = name.split('{').next().expect("a name");
            assert!(
                families.iter().any(|known| family.starts_with(known)),
                "no family before {line:?}"
            );
            if let Some(at) = name.find('{') {
                let labels = name[at + 1..].strip_suffix('}').expect("closed labels");
                for label in labels.split(',') {
                    let (_, value) = label.split_once('=').expect("a label's value");
                    assert!(
                        value.len() >= 2 && value.starts_with('"') && value.ends_with('"'),
                        "{line}"
                    );
                }
            }
            let value = value
                .parse()
                .unwrap_or_else(|_| panic!("no number: {line:?}"));
            assert!(
                samples.insert(name.to_owned(), value).is_none(),
                "twice: {line:?}"
            );
        }
        Self(samples)
    }

    /// Returns the sum of all samples of a name whose labels contain all of `labels`, such as `direction="out"`.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let of_name = |sample: &&String| sample.split('{').next() == Some(name);
        let found: Vec<&String> = self.0.keys().filter(of_name).collect();
        assert!(!found.is_empty(), "no metric {name}");
        found
            .into_iter()
            .filter(|sample| labels.iter().all(|label| sample.contains(label)))
            .map(|s| self.0[s])
            .sum()
    }
}
