//! Fingerprints that reveal a changed file without reading it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// Modification time, length and inode of a file; `None` if it does not exist.
pub type FileFingerprint = Option<(SystemTime, u64, u64)>;

/// Returns the current fingerprint of a file.
#[must_use]
pub fn fingerprint(file: &Path) -> FileFingerprint {
    let metadata = file.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
