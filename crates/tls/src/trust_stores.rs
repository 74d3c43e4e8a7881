//! What clients of one process believe: each belief is read once, and again when its file has changed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{ClientTrust, Error, FileFingerprint, TrustSource, fingerprint};

/// Beliefs that are kept: scripts name the files.
const CACHED_MAX: usize = 64;

/// The trusts of all beliefs that somebody had.
#[derive(Debug, Default)]
pub struct TrustStores {
    cache: Mutex<HashMap<TrustSource, CacheSlot>>,
}

/// One belief's. It is locked while files are read, so that they are read once, and whoever believes something else
/// does not wait for that.
type CacheSlot = Arc<Mutex<Option<(FileFingerprint, ClientTrust)>>>;

impl TrustStores {
    /// The trust of those who believe that. May read files: not to be called where others wait.
    ///
    /// # Errors
    /// Those of [`ClientTrust::new`]; they are not kept.
    pub fn load(&self, believe: &TrustSource) -> Result<ClientTrust, Error> {
        let place = self.slot(believe);
        let stamp = fingerprint_of(believe);
        let mut place = place.lock();
        if let Some((known, trust)) = &*place
            && *known == stamp
        {
            return Ok(trust.clone());
        }
        let trust = ClientTrust::new(believe)?;
        *place = Some((stamp, trust.clone()));
        Ok(trust)
    }

    /// The same, if it is known already: reads no certificates, and waits for nobody who does.
    #[must_use]
    pub fn cached(&self, believe: &TrustSource) -> Option<ClientTrust> {
        let place = self.cache.lock().get(believe).map(Arc::clone)?;
        let place = place.try_lock()?;
        let (known, trust) = place.as_ref()?;
        (*known == fingerprint_of(believe)).then(|| trust.clone())
    }

    fn slot(&self, believe: &TrustSource) -> CacheSlot {
        let mut kept = self.cache.lock();
        if let Some(place) = kept.get(believe) {
            return Arc::clone(place);
        }
        if kept.len() >= CACHED_MAX {
            kept.clear();
        }
        Arc::clone(kept.entry(believe.clone()).or_default())
    }
}

fn fingerprint_of(believe: &TrustSource) -> FileFingerprint {
    match believe {
        TrustSource::File(file) => fingerprint(file),
        TrustSource::System | TrustSource::Insecure => None,
    }
}
