//! Records for tests what applications log and publish, in order.

use std::cell::RefCell;
use std::rc::Rc;

use veche_runtime::Level;
use veche_types::MessageKind;

/// The most entries of one run; later ones are dropped.
const ENTRIES_MAX: usize = 100_000;

/// An action of an application, recorded by `veche test`.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedEntry {
    /// An application wrote a log line or failed.
    Logged {
        /// The severity of the line.
        level: Level,
        /// The text of the line.
        text: String,
    },
    /// The test itself logged or received something.
    Noted {
        /// The severity of the line.
        level: Level,
        /// The text of the line.
        text: String,
    },
    /// An application published to a channel.
    Published {
        /// The name of the channel.
        channel: String,
        /// Whether the data is text or binary.
        kind: MessageKind,
        /// The data as published.
        data: Vec<u8>,
    },
}

/// A recording, shared by its writers and readers.
#[derive(Clone, Debug, Default)]
pub struct AppRecorder(Rc<RefCell<Vec<RecordedEntry>>>);

impl AppRecorder {
    /// Adds an entry, up to the limit.
    pub fn write(&self, entry: RecordedEntry) {
        let mut entries = self.0.borrow_mut();
        if entries.len() < ENTRIES_MAX {
            entries.push(entry);
        }
    }

    /// Returns all entries so far.
    pub fn entries(&self) -> Vec<RecordedEntry> {
        self.0.borrow().clone()
    }
}
