//! What clients of one process believe: each belief is read once, and again when its file has changed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Believe, Error, Stamp, Trust, stamp};

/// Beliefs that are kept: scripts name the files.
const KEPT_MAX: usize = 64;

/// The trusts of all beliefs that somebody had.
#[derive(Debug, Default)]
pub struct Trusts {
    kept: Mutex<HashMap<Believe, Place>>,
}

/// One belief's. It is locked while files are read, so that they are read once, and whoever believes something else
/// does not wait for that.
type Place = Arc<Mutex<Option<(Stamp, Trust)>>>;

impl Trusts {
    /// The trust of those who believe that. May read files: not to be called where others wait.
    ///
    /// # Errors
    /// Those of [`Trust::new`]; they are not kept.
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

    /// The same, if it is known already: reads no certificates, and waits for nobody who does.
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
