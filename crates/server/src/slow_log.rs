//! The slowest recent operations: turns of workers, handlers of applications, requests.
//!
//! Workers record operations above a threshold, which are rare. For each kind of operation, only the slowest few of
//! the last five to ten minutes are kept. `veche status --slow` shows them.

use parking_lot::Mutex;
use serde_json::{Value, json};
use veche_frontends::access_log_buffer::{SlowEvent, SlowEventKind};

/// The number of operations of each kind that are kept.
const KEPT: usize = 10;
/// The length of a window in milliseconds; the current and the previous one are kept.
const WINDOW_MS: u64 = 5 * 60 * 1000;

/// The slowest operations in two windows.
#[derive(Default)]
pub(crate) struct SlowLog(Mutex<[SlowWindow; 2]>);

/// The slowest operations of one window.
#[derive(Clone, Default)]
struct SlowWindow {
    number: u64,
    kinds: [Vec<SlowEntry>; SlowEventKind::ALL.len()],
}

#[derive(Clone)]
struct SlowEntry {
    slow: SlowEvent,
    worker: usize,
    /// The time at which the operation ended, in Unix milliseconds.
    at_ms: u64,
}

impl SlowLog {
    /// Records an operation if it is among the slowest.
    pub(crate) fn note(&self, slow: SlowEvent, worker: usize, at_ms: u64) {
        let mut windows = self.0.lock();
        turn_to(&mut windows, at_ms / WINDOW_MS);
        let kind = &mut windows[0].kinds[slow.kind as usize];
        if slow.kind == SlowEventKind::Consumer {
            // The new event replaces earlier events of the same slow client.
            kind.retain(|other| client_of(&other.slow) != client_of(&slow));
        }
        insert(
            kind,
            SlowEntry {
                slow,
                worker,
                at_ms,
            },
        );
    }

    /// Returns the operations by kind, the slowest first.
    pub(crate) fn show(&self, now_ms: u64) -> Value {
        let mut windows = self.0.lock();
        turn_to(&mut windows, now_ms / WINDOW_MS);
        let of_kind = |kind: SlowEventKind| {
            let mut longest = windows[0].kinds[kind as usize].clone();
            for noted in &windows[1].kinds[kind as usize] {
                insert(&mut longest, noted.clone());
            }
            let shown = |noted: &SlowEntry| {
                json!({
                    "what": noted.slow.subject,
                    "ms": noted.slow.duration_ms,
                    "worker": noted.worker,
                    "ago_s": now_ms.saturating_sub(noted.at_ms) / 1000,
                })
            };
            Value::from(longest.iter().map(shown).collect::<Vec<_>>())
        };
        let kinds = SlowEventKind::ALL.into_iter();
        Value::Object(
            kinds
                .map(|(kind, name)| (name.to_owned(), of_kind(kind)))
                .collect(),
        )
    }
}

/// Starts the window `number` if it is later than the current window. If the clock is set back, the current window
/// stays.
fn turn_to(windows: &mut [SlowWindow; 2], number: u64) {
    if number <= windows[0].number {
        return;
    }
    let last = std::mem::take(&mut windows[0]);
    windows[1] = match last.number + 1 == number {
        true => last,
        false => SlowWindow::default(),
    };
    windows[0].number = number;
}

/// Returns the part of an event's subject that identifies the client; empty if there is no such part.
fn client_of(slow: &SlowEvent) -> &str {
    slow.subject.split_once(": ").map_or("", |(owner, _)| owner)
}

/// Inserts an entry in order, the slowest first, and trims the list.
fn insert(longest: &mut Vec<SlowEntry>, noted: SlowEntry) {
    let place = longest.partition_point(|other| other.slow.duration_ms >= noted.slow.duration_ms);
    if place < KEPT {
        longest.insert(place, noted);
        longest.truncate(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(board: &SlowLog, what: &str, lasted_ms: u64, at_ms: u64) {
        let slow = SlowEvent {
            kind: SlowEventKind::Handler,
            subject: what.into(),
            duration_ms: lasted_ms,
        };
        board.note(slow, 1, at_ms);
    }

    fn shown(board: &SlowLog, now_ms: u64) -> Vec<u64> {
        let shown = board.show(now_ms);
        let list = shown["handler"].as_array().expect("a list");
        list.iter()
            .map(|one| one["ms"].as_u64().expect("a number"))
            .collect()
    }

    #[test]
    fn a_client_is_named_once() {
        let board = SlowLog::default();
        for (what, lasted_ms) in [
            ("ann at 10.0.0.1 on /ws: misses 1", 9),
            ("bob at 10.0.0.1 on /ws: misses 1", 5),
            ("ann at 10.0.0.1 on /ws: misses 2", 3),
        ] {
            let slow = SlowEvent {
                kind: SlowEventKind::Consumer,
                subject: what.into(),
                duration_ms: lasted_ms,
            };
            board.note(slow, 0, 1000);
        }
        let shown = board.show(1000);
        let named = shown["consumer"].as_array().expect("a list");
        assert_eq!(named.len(), 2);
        assert_eq!(named[1]["what"], "ann at 10.0.0.1 on /ws: misses 2");
    }

    #[test]
    fn the_longest_few_of_lately() {
        let board = SlowLog::default();
        for ms in 1..=30 {
            note(&board, "a", ms * 7 % 31, 1000);
        }
        let longest: Vec<u64> = (21..=30).rev().collect();
        assert_eq!(shown(&board, 1000), longest);
        // The entries of the previous window are shown together with those of the current window.
        note(&board, "b", 25, WINDOW_MS + 5);
        assert_eq!(
            shown(&board, WINDOW_MS + 5)[..7],
            [30, 29, 28, 27, 26, 25, 25]
        );
        assert_eq!(shown(&board, 2 * WINDOW_MS), [25]);
        assert_eq!(shown(&board, 9 * WINDOW_MS), [0; 0]);
        let value = board.show(9 * WINDOW_MS);
        assert_eq!(
            value,
            json!({"turn": [], "handler": [], "request": [], "consumer": []})
        );
    }
}
