//! What tells that a file is another one, without reading it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// When a file was changed, its length and its number; `None` for one that is not there.
pub type FileFingerprint = Option<(SystemTime, u64, u64)>;

/// Of that file, now.
#[must_use]
pub fn fingerprint(file: &Path) -> FileFingerprint {
    let metadata = file.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
