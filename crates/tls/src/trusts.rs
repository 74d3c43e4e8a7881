//! A cache of client trust per process: each source is loaded once, and again when its file has changed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Believe, Error, Stamp, Trust, stamp};

/// Maximum number of cached sources, because scripts name the files.
const KEPT_MAX: usize = 64;

/// The cached trust of all sources.
#[derive(Debug, Default)]
pub struct Trusts {
    kept: Mutex<HashMap<Believe, Place>>,
}

/// The entry of one source. It is locked while files are read, so that they are read once without delaying other
/// sources.
type Place = Arc<Mutex<Option<(Stamp, Trust)>>>;

impl Trusts {
    /// Returns the trust of a source. May read files, so it must not be called on a worker thread.
    ///
    /// # Errors
    /// Those of [`Trust::new`]; they are not cached.
    pub fn find(&self, believe: &Believe) -> Result<Trust, Error> {
        let place = self.place(believe);
        let stamp = stamp_of(believe);
        let mut place = place.lock();
        if let Some((known, trust)) = &*place
            && *known == stamp
        {
            return Ok(trust.clone());
        }
        let trust = Trust::new(believe)?;
        *place = Some((stamp, trust.clone()));
        Ok(trust)
    }

    /// Returns the cached trust of a source, without reading files or blocking.
    #[must_use]
    pub fn known(&self, believe: &Believe) -> Option<Trust> {
        let place = self.kept.lock().get(believe).map(Arc::clone)?;
        let place = place.try_lock()?;
        let (known, trust) = place.as_ref()?;
        (*known == stamp_of(believe)).then(|| trust.clone())
    }

    fn place(&self, believe: &Believe) -> Place {
        let mut kept = self.kept.lock();
        if let Some(place) = kept.get(believe) {
            return Arc::clone(place);
        }
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        Arc::clone(kept.entry(believe.clone()).or_default())
    }
}

fn stamp_of(believe: &Believe) -> Stamp {
    match believe {
        Believe::File(file) => stamp(file),
        Believe::System | Believe::Anybody => None,
    }
}
