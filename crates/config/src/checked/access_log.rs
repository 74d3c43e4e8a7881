//! Checks `[access_log]`.

use super::{Checker, rotation, text};
use crate::raw::RawTable;
use crate::template::Template;
use crate::types::AccessLogConfig;
use crate::value::DirectiveValue;

impl Checker<'_> {
    pub(super) fn access_log(&mut self, table: &RawTable) -> Option<AccessLogConfig> {
        let format = text(table, "format")?;
        let template = self.take("format", table.value_at("format"), Template::parse(&format));
        let Some(file) = text(table, "file") else {
            let others = ["format", "sample", "internal", "rotate", "keep"];
            if let Some(set) = others.into_iter().find(|name| table.has(name)) {
                let message = format!("{set}: the access log is disabled unless file is set");
                self.warn(table.key_at(set), message);
            }
            return None;
        };
        let file = self.base.join(file);
        self.folder_of(table, "file", &file);
        Some(AccessLogConfig {
            file,
            template: template?,
            share: match table.value("sample")? {
                DirectiveValue::Share(share) => share,
                _ => return None,
            },
            internal: matches!(table.value("internal"), Some(DirectiveValue::Flag(true))),
            rotation: rotation(table, "rotate", "keep"),
        })
    }
}
