//! Whom clients believe: settings of TLS, made once for each [`Trust`].

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::ClientConfig;
use veche_calls::Trust;
use veche_tls::Believe;

/// Files of certificates that are remembered; beyond it all are forgotten.
const KNOWN_MAX: usize = 64;

/// Settings by whom they believe.
#[derive(Debug, Default)]
pub(crate) struct Trusts(Mutex<HashMap<Trust, Known>>);

/// One that was made, of a file as it was then.
#[derive(Debug)]
struct Known {
    modified: Option<SystemTime>,
    config: Arc<ClientConfig>,
}

impl Trusts {
    /// The settings. Reads files: not to be called where others wait.
    ///
    /// # Errors
    /// A file that can't be read or has no certificate in it, in words.
    pub(crate) fn config(&self, trust: &Trust) -> Result<Arc<ClientConfig>, String> {
        let modified = match trust {
            Trust::File(file) => fs::metadata(file).and_then(|data| data.modified()).ok(),
            Trust::System | Trust::Anybody => None,
        };
        if let Some(known) = self.0.lock().get(trust)
            && known.modified == modified
        {
            return Ok(Arc::clone(&known.config));
        }
        let config = make(trust)?;
        let mut known = self.0.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        let copy = Arc::clone(&config);
        known.insert(
            trust.clone(),
            Known {
                modified,
                config: copy,
            },
        );
        Ok(config)
    }
}

fn make(trust: &Trust) -> Result<Arc<ClientConfig>, String> {
    let believe = match trust {
        Trust::System => Believe::System,
        Trust::File(file) => Believe::File(file.clone()),
        Trust::Anybody => Believe::Anybody,
    };
    let made = veche_tls::Trust::new(&believe).map_err(|error| error.to_string())?;
    Ok(made.config())
}
