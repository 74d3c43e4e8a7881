//! Tests the whole server with power cuts, failing disks and wrong clocks: acknowledged data survives, or clients learn
//! that something is missing.
//!
//! `VECHE_DURABILITY_ROUNDS` sets the number of power cuts, 2 by default. A run prints its seed, and
//! `VECHE_DURABILITY_SEED` reproduces it.

mod clock;
mod disk;
mod faults;
mod power;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::jwt;
use crate::support::http::Http;
use crate::support::server::KEY_HEADER;
use crate::support::{Server, call};

/// The history size of a channel, in publications.
const KEPT: u64 = 5_000;

const ROUTES: &str = "[[route]]\npath = \"/follow\"\nhandler = \"push\"\nidentity = \"query:user\"\n\
    channels = [\"chat:*\"]\npositions = true\n\
    [[route]]\npath = \"/jwt\"\nhandler = \"push\"\nidentity = \"jwt\"\n\
    [jwt]\nsecret_file = \"secret\"\n\
    [[namespace]]\nname = \"chat\"\nhistory_size = 5000\nhistory_ttl = \"1h\"\n\
    [history]\npath = \"disk/history\"\n";

/// Acknowledged publications: the offset of each by the number that it contains, and the channel's epoch.
#[derive(Debug, Default)]
struct Answered {
    epoch: String,
    offsets: BTreeMap<u64, u64>,
}

impl Answered {
    fn last(&self) -> u64 {
        self.offsets.values().max().copied().unwrap_or_default()
    }

    /// Publishes a number; returns false if no response arrives, for example because the server is
    /// gone.
    fn publish(&mut self, http: &mut Http, channel: &str, number: u64) -> bool {
        let body = json!({ "channel": channel, "data": number }).to_string();
        let answer = http.request("POST", "/api/publish", KEY_HEADER, body.as_bytes());
        let Ok(answer) = answer else { return false };
        let answer = answer.json();
        let result = &answer["result"];
        let offset = result["offset"].as_u64();
        let offset = offset.unwrap_or_else(|| panic!("it is not kept: {answer}"));
        let epoch = result["epoch"].as_str().expect("an epoch");
        if self.epoch.is_empty() {
            epoch.clone_into(&mut self.epoch);
        }
        assert_eq!(self.epoch, epoch, "{channel} while the server runs");
        self.offsets.insert(number, offset);
        true
    }
}

/// The contents of a channel: for each offset, the number that the publication contains.
#[derive(Debug)]
struct History {
    epoch: String,
    top: u64,
    numbers: BTreeMap<u64, u64>,
}

fn history(server: &Server, channel: &str) -> History {
    let body = json!({ "channel": channel, "limit": -1 });
    let mut page = call(server.internal, "history", &body)["result"].take();
    let number = |value: &Value| value.as_u64().expect("a number");
    let all = page["publications"].as_array().expect("a list").iter();
    let numbers = all
        .map(|one| (number(&one["offset"]), number(&one["data"])))
        .collect();
    let Value::String(epoch) = page["epoch"].take() else {
        panic!("no epoch: {page}");
    };
    History {
        epoch,
        top: number(&page["offset"]),
        numbers,
    }
}

impl History {
    /// Asserts that each acknowledged publication is at its offset, unless evicted since.
    fn check_has_all(&self, of: &Answered, channel: &str) {
        let lost: Vec<_> = { of.offsets.iter() }
            .filter(|(_, offset)| **offset + KEPT > self.top)
            .filter(|(number, offset)| self.numbers.get(offset) != Some(number))
            .collect();
        assert!(lost.is_empty(), "{channel}: {lost:?} were answered");
    }

    /// Asserts that nothing is missing, duplicated or reordered.
    fn check_is_whole(&self, channel: &str) {
        let offsets: Vec<u64> = self.numbers.keys().copied().collect();
        let first = self.top + 1 - offsets.len() as u64;
        assert!(
            offsets.into_iter().eq(first..=self.top),
            "{channel} has a hole"
        );
        let numbers = self.numbers.values();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{channel}: {self:?}");
    }
}

/// Returns whether a user is admitted.
fn is_let_in(server: &Server, user: &str) -> bool {
    let target = format!("/follow?user={user}&channel=chat:0");
    let status = jwt::handshake(server.public, &target, "").status;
    assert!(matches!(status, 101 | 403), "{status}");
    status == 101
}
