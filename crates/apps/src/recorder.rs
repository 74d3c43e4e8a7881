//! What applications did, for a test to read: what they logged and published, in order.

use std::cell::RefCell;
use std::rc::Rc;

use veche_runtime::Level;
use veche_types::MessageKind;

/// Entries of a run; what comes after them is not kept.
const ENTRIES_MAX: usize = 100_000;

/// One thing that an application did.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedEntry {
    /// It logged, or failed.
    Logged {
        /// The line's level.
        level: Level,
        /// The line.
        text: String,
    },
    /// The test logged, or was told something.
    Noted {
        /// The line's level.
        level: Level,
        /// The line.
        text: String,
    },
    /// It published.
    Published {
        /// The channel's name.
        channel: String,
        /// Whether it is text.
        kind: MessageKind,
        /// The message.
        data: Vec<u8>,
    },
}

/// Shared by who writes and who reads.
#[derive(Clone, Debug, Default)]
pub struct AppRecorder(Rc<RefCell<Vec<RecordedEntry>>>);

impl AppRecorder {
    /// Adds an entry, up to a limit.
    pub fn write(&self, entry: RecordedEntry) {
        let mut entries = self.0.borrow_mut();
        if entries.len() < ENTRIES_MAX {
            entries.push(entry);
        }
    }

    /// All so far.
    pub fn entries(&self) -> Vec<RecordedEntry> {
        self.0.borrow().clone()
    }
}
