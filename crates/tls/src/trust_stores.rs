//! A cache of the certificates that TLS clients of this process trust: each source is loaded once, and again
//! when its file has changed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{ClientTrust, Error, FileFingerprint, TrustSource, fingerprint};

/// Maximum number of cached trust sources. It is needed because scripts choose the files. When it is reached, the cache
/// is cleared.
const CACHED_MAX: usize = 64;

/// The cached trust of all sources.
#[derive(Debug, Default)]
pub struct TrustStores {
    cache: Mutex<HashMap<TrustSource, CacheSlot>>,
}

/// The cache entry of one trust source. It is locked while the source's files are read, so that they are read
/// only once. Other sources are not delayed.
type CacheSlot = Arc<Mutex<Option<(FileFingerprint, ClientTrust)>>>;

impl TrustStores {
    /// Returns the trust of a source. May read files, so it must not be called on a worker thread.
    ///
    /// # Errors
    /// Those of [`ClientTrust::new`]; they are not cached.
    pub fn load(&self, trust_source: &TrustSource) -> Result<ClientTrust, Error> {
        let place = self.slot(trust_source);
        let fingerprint = fingerprint_of(trust_source);
        let mut place = place.lock();
        if let Some((known, trust)) = &*place
            && *known == fingerprint
        {
            return Ok(trust.clone());
        }
        let trust = ClientTrust::new(trust_source)?;
        *place = Some((fingerprint, trust.clone()));
        Ok(trust)
    }

    /// Returns the cached trust of a source, without reading the source's file. Returns `None` if the trust is not cached
    /// or is being loaded, or if the file has changed.
    #[must_use]
    pub fn cached(&self, trust_source: &TrustSource) -> Option<ClientTrust> {
        let place = self.cache.lock().get(trust_source).map(Arc::clone)?;
        let place = place.try_lock()?;
        let (known, trust) = place.as_ref()?;
        (*known == fingerprint_of(trust_source)).then(|| trust.clone())
    }

    fn slot(&self, trust_source: &TrustSource) -> CacheSlot {
        let mut kept = self.cache.lock();
        if let Some(place) = kept.get(trust_source) {
            return Arc::clone(place);
        }
        if kept.len() >= CACHED_MAX {
            kept.clear();
        }
        Arc::clone(kept.entry(trust_source.clone()).or_default())
    }
}

fn fingerprint_of(trust_source: &TrustSource) -> FileFingerprint {
    match trust_source {
        TrustSource::File(file) => fingerprint(file),
        TrustSource::System | TrustSource::Insecure => None,
    }
}
