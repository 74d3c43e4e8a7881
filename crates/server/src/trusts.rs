//! What clients of TLS believe, read once for the whole process.

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use parking_lot::Mutex;
use veche_tls::{Believe, Error, Trust};

/// Beliefs that are kept: scripts name the files.
const KEPT_MAX: usize = 64;

/// See the module's text. The lock is held while files are read, so that they are read once.
#[derive(Default)]
pub(crate) struct Trusts {
    kept: Mutex<HashMap<Believe, (Stamp, Trust)>>,
}

/// What tells that a file is another one: when it was changed, and its length.
type Stamp = Option<(SystemTime, u64)>;

impl Trusts {
    /// The trust of those who believe that. A file is read again when it has changed.
    pub(crate) fn find(&self, believe: &Believe) -> Result<Trust, Error> {
        let stamp = match believe {
            Believe::File(file) => stamp(file),
            Believe::System | Believe::Anybody => None,
        };
        let mut kept = self.kept.lock();
        if let Some((known, trust)) = kept.get(believe)
            && *known == stamp
        {
            return Ok(trust.clone());
        }
        let trust = Trust::new(believe)?;
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(believe.clone(), (stamp, trust.clone()));
        Ok(trust)
    }
}

fn stamp(file: &Path) -> Stamp {
    let metadata = file.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
