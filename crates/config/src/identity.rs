//! The checked `[jwt]`, `[subscription_jwt]`, `[identity_hook]` and `[pam]` sections: how clients are identified.

use std::path::{Path, PathBuf};
use std::time::Duration;

use veche_calls::SecretUrl;
use veche_frontends::identity::token::TokenSource;
use veche_frontends::rate::Rate;
use veche_jwt::{ClaimRules, Keys, SECRET_BYTES_MIN};
use veche_terminal::plain;

/// `[jwt]` or `[subscription_jwt]`: how tokens of one issuer are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtConfig {
    /// The keys that tokens are verified with.
    pub keys: KeySource,
    /// The previous secret, during a rotation.
    pub previous: Option<PreviousSecret>,
    /// Whether a secret shorter than the digest of its algorithm is rejected.
    pub refuses_short_secrets: bool,
    /// The claims that a token has to have.
    pub rules: ClaimRules,
    /// The parts of a request that may contain the token: at least one for `[jwt]`, none for `[subscription_jwt]`.
    pub places: Vec<TokenSource>,
}

/// The previous secret, which remains valid for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousSecret {
    /// The source of the previous secret.
    pub keys: KeySource,
    /// The time in seconds since 1970 until which the previous secret is valid; `None`: no limit.
    pub until_s: Option<u64>,
}

impl JwtConfig {
    /// Returns the files that keys or certificates are read from.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let previous = self.previous.iter().map(|previous| &previous.keys);
        let sources = std::iter::once(&self.keys).chain(previous);
        sources.filter_map(KeySource::file)
    }

    /// Reads the keys; `None` if the issuer publishes them.
    ///
    /// # Errors
    /// The keys can't be read or used. The error is a line that says what to do and reveals nothing of the keys.
    pub fn read(&self) -> Result<Option<Keys>, String> {
        let Some(keys) = self.checked(&self.keys)? else {
            return Ok(None);
        };
        let Some(previous) = &self.previous else {
            return Ok(Some(keys));
        };
        let keys = match self.checked(&previous.keys)? {
            None => Ok(keys),
            Some(before) => keys.with_previous(before, previous.until_s),
        };
        keys.map(Some).map_err(|why| why.to_string())
    }

    fn checked(&self, source: &KeySource) -> Result<Option<Keys>, String> {
        let keys = source.read()?;
        let short = keys.as_ref().and_then(Keys::short_secret);
        match short.filter(|_| self.refuses_short_secrets) {
            Some(length) => Err(short_secret(length)),
            None => Ok(keys),
        }
    }
}

/// Formats the warning about a secret of this length in bytes.
pub(super) fn short_secret(length: usize) -> String {
    format!(
        "the secret has {length} bytes; secrets of less than {SECRET_BYTES_MIN} bytes can be guessed; create one with `openssl rand -hex 32`"
    )
}

/// The source of the keys that tokens are verified with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file with a secret.
    SecretFile(PathBuf),
    /// An environment variable with a secret.
    SecretVariable(String),
    /// A PEM file of public keys.
    PublicFile(PathBuf),
    /// A key set published by the issuer.
    Published(PublishedKeySet),
}

/// A JSON Web Key Set behind a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedKeySet {
    /// The URL of the key set, with scheme `http` or `https`.
    pub url: SecretUrl,
    /// The interval at which the set is fetched again.
    pub refresh: Duration,
    /// The certificates to trust for `https`; `None`: those of the system.
    pub ca: Option<PathBuf>,
}

/// Maximum length of a key file in bytes.
const KEYS_BYTES_MAX: u64 = 256 << 10;

impl KeySource {
    /// Returns the file that the keys or the trusted certificates are read from, if any.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::SecretFile(file) | Self::PublicFile(file) => Some(file),
            Self::SecretVariable(_) => None,
            Self::Published(set) => set.ca.as_deref(),
        }
    }

    /// Reads the keys; `None` if the issuer publishes them.
    ///
    /// # Errors
    /// The keys can't be read or used. The error is a line that says what to do and reveals nothing of the keys.
    pub fn read(&self) -> Result<Option<Keys>, String> {
        match self {
            Self::SecretFile(file) => {
                let text = read(file)?;
                // Editors and `echo` add a newline that is not part of the secret.
                let secret = text.strip_suffix(b"\n").unwrap_or(&text);
                let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
                Keys::secret(secret).map_err(|why| format!("{}: {why}", file.display()))
            }
            Self::SecretVariable(name) => match std::env::var_os(name) {
                None => Err(format!("the environment has no variable {name:?}")),
                Some(value) => Keys::secret(value.as_encoded_bytes())
                    .map_err(|why| format!("the environment variable {name:?}: {why}")),
            },
            Self::PublicFile(file) => {
                Keys::pem(&read(file)?).map_err(|why| format!("{}: {why}", file.display()))
            }
            Self::Published(_) => return Ok(None),
        }
        .map(Some)
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let read = veche_files::read(file)
        .and_then(|opened| opened.take(KEYS_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(format!("{}: {}", file.display(), plain(&error))),
    }
}

/// `[identity_hook]`: requests to the back end that identify clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityHookConfig {
    /// Client headers that are passed on, in lower case.
    pub headers: Vec<String>,
    /// The time limit from the request to the complete response.
    pub timeout: Duration,
    /// The time for which a response without its own lifetime is cached; `None`: not cached.
    pub cache_time: Option<Duration>,
    /// Maximum number of cached responses.
    pub cache_entries: u32,
    /// Maximum number of concurrent requests to the back end; further requests queue.
    pub concurrency: u32,
    /// Maximum number of handshakes and requests that wait for a response.
    pub waiting: u32,
    /// The number of failures within ten seconds after which requests are suspended for `pause`. They are suspended only
    /// if there were more failures than responses in these ten seconds.
    pub failures: u32,
    /// How long requests are suspended after too many failures.
    pub pause: Duration,
    /// The certificates to trust, as in [`PublishedKeySet::ca`].
    pub ca: Option<PathBuf>,
}

/// `[pam]`: how names and passwords are checked by the system's PAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PamConfig {
    /// The realm that browsers show in the password prompt.
    pub realm: String,
    /// Maximum number of helper processes, at least 1.
    pub helpers: u32,
    /// The idle time after which a helper is ended.
    pub helper_idle: Duration,
    /// The time limit from the request to the result, including the wait for a helper.
    pub timeout: Duration,
    /// Maximum number of waiting requests of each service.
    pub waiting: u32,
    /// The time for which a successful result is cached; `None`: not cached.
    pub cache_time: Option<Duration>,
    /// The rate limit of wrong passwords per address; `None`: unlimited.
    pub wrong_per_address: Option<Rate>,
}
