//! Figures of attacks for a report: a line of JSON for each, in the file named by `VECHE_ATTACK_EVIDENCE`.
//! `bench/attacks` generates a page from them.

use std::fs::File;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bystanders::Waits;
use crate::support::{now, process};

const FILE: &str = "VECHE_ATTACK_EVIDENCE";

/// The time after the end of the attack at which the memory is measured again.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// The result of one attack.
pub(crate) struct Evidence {
    pub(crate) io: &'static str,
    /// The latencies of the ordinary clients of two servers: the attacked one, and another one that runs beside it.
    pub(crate) waits: [Waits; 2],
    /// The resident memory of the server process in KiB before the attack. `peak_kib` is the maximum.
    pub(crate) before_kib: u64,
    pub(crate) peak_kib: u64,
    pub(crate) ended: Instant,
}

impl Evidence {
    /// Appends a line of JSON to the report file, if one is set, after measuring the memory again.
    pub(crate) fn write(&self, pid: u32) {
        let Some(file) = std::env::var_os(FILE) else {
            return;
        };
        thread::sleep((self.ended + AFTERWARDS).saturating_duration_since(now()));
        let [attacked, beside] = self.waits.each_ref().map(Waits::shown);
        let line: Value = json!({
            "attack": thread::current().name(),
            "io": self.io,
            "attacked": attacked,
            "beside": beside,
            "before_kib": self.before_kib,
            "peak_kib": self.peak_kib,
            "after_kib": process::rss_kib(pid),
        });
        let file = File::options().append(true).create(true).open(file);
        writeln!(file.expect("it can be made"), "{line}").expect("it can be written");
    }
}
