//! Records what applications log and publish, in order, for the tests run by `veche test`.

use std::cell::RefCell;
use std::rc::Rc;

use veche_runtime::Level;
use veche_types::MessageKind;

/// Maximum number of entries per test run; further entries are dropped.
const ENTRIES_MAX: usize = 100_000;

/// An action of an application, recorded by `veche test`.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedEntry {
    /// An application wrote a log line or failed.
    Logged {
        /// The severity of the log line.
        level: Level,
        /// The text of the log line, or the error.
        text: String,
    },
    /// The test case itself logged a line or received a message.
    Noted {
        /// The severity of the log line.
        level: Level,
        /// The text of the log line or message.
        text: String,
    },
    /// An application published to a channel.
    Published {
        /// The name of the channel.
        channel: String,
        /// The type of the data: text or binary.
        kind: MessageKind,
        /// The data as published.
        data: Vec<u8>,
    },
}

/// The recorded entries, shared by the code that writes them and the code that reads them.
#[derive(Clone, Debug, Default)]
pub struct AppRecorder(Rc<RefCell<Vec<RecordedEntry>>>);

impl AppRecorder {
    /// Adds an entry, unless the maximum number of entries is reached.
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
