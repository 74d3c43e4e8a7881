//! Checks `[history]`, the storage of channel history.

use super::{Checker, text};
use crate::raw::RawTable;
use crate::types::{Fsync, HistoryStore, NamespaceConfig};
use crate::value::DirectiveValue;

impl Checker<'_> {
    /// Reads `[history]`; `None` if history is not stored on disk.
    pub(super) fn history(
        &mut self,
        table: &RawTable,
        namespaces: &[Option<NamespaceConfig>],
    ) -> Option<HistoryStore> {
        let Some(path) = text(table, "path") else {
            if table.has("fsync") && table.is_sound("path") {
                let why = "fsync: has no effect without path";
                self.warn(table.key_at("fsync"), why);
            }
            return None;
        };
        let path = self.base.join(path);
        if (self.world.is_file)(&path) && !(self.world.is_folder)(&path) {
            let why = format!("path: expected a folder, but {} is a file", path.display());
            self.problems.add(table.value_at("path"), why);
        }
        self.folder_of(table, "path", &path);
        let mut known = namespaces.iter().flatten();
        if !known.any(|namespace| namespace.history.is_some()) {
            let why = "path: no [[namespace]] has history_size, so no history is stored";
            self.warn(table.key_at("path"), why);
        }
        let fsync = match table.value("fsync") {
            Some(DirectiveValue::Duration(every)) => Fsync::Interval(every),
            Some(DirectiveValue::Word("commit")) => Fsync::Commit,
            _ => Fsync::Never,
        };
        Some(HistoryStore { path, fsync })
    }
}
