//! `[jwt]`, `[subscription_jwt]`, `[identity_hook]` and `[pam]` once they have been checked: how it is found out who a client is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use veche_calls::SecretUrl;
use veche_frontends::identity::token::TokenSource;
use veche_frontends::rate::Rate;
use veche_jwt::{ClaimRules, Keys, SECRET_BYTES_MIN};
use veche_terminal::plain;

/// `[jwt]` or `[subscription_jwt]`: tokens of one issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtConfig {
    /// Where the keys are that sign tokens.
    pub keys: KeySource,
    /// The secret that was in use before.
    pub previous: Option<PreviousSecret>,
    /// Whether a secret shorter than its digest is refused.
    pub refuses_short_secrets: bool,
    /// What a token has to have in it.
    pub rules: ClaimRules,
    /// Where connection tokens are looked for in requests; at least one, none for subscription tokens.
    pub places: Vec<TokenSource>,
}

/// A secret that still counts beside the one that took its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousSecret {
    /// Where it is, or the keys that it stands for.
    pub keys: KeySource,
    /// In seconds since 1970; `None`: for as long as it is named.
    pub until_s: Option<u64>,
}

impl JwtConfig {
    /// The files that keys or authorities are read from.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let previous = self.previous.iter().map(|previous| &previous.keys);
        let sources = std::iter::once(&self.keys).chain(previous);
        sources.filter_map(KeySource::file)
    }

    /// The keys, read now; `None` where they are the issuer's to tell.
    ///
    /// # Errors
    /// They can't be read, or used; as a line to act on, which shows nothing of them.
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

/// The warning about a secret of this length in bytes.
pub(super) fn short_secret(length: usize) -> String {
    format!(
        "the secret has {length} bytes; one of less than {SECRET_BYTES_MIN} can be guessed by trying: make one with `openssl rand -hex 32`"
    )
}

/// Where the keys are that tokens are checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file that holds a secret.
    SecretFile(PathBuf),
    /// A variable of the environment that does.
    SecretVariable(String),
    /// Public keys in PEM.
    PublicFile(PathBuf),
    /// A set that the issuer publishes.
    Published(PublishedKeySet),
}

/// A JSON Web Key Set behind a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedKeySet {
    /// `http` or `https`.
    pub url: SecretUrl,
    /// It is fetched anew so often.
    pub refresh: Duration,
    /// Who vouches for the server behind `https`, if not the system's authorities.
    pub ca: Option<PathBuf>,
}

/// Longest file of keys, in bytes.
const KEYS_BYTES_MAX: u64 = 256 << 10;

impl KeySource {
    /// The file that is read for it, of keys or of authorities.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::SecretFile(file) | Self::PublicFile(file) => Some(file),
            Self::SecretVariable(_) => None,
            Self::Published(set) => set.ca.as_deref(),
        }
    }

    /// The keys, read now; `None` where they are the issuer's to tell.
    ///
    /// # Errors
    /// They can't be read, or used; as a line to act on, which shows nothing of them.
    pub fn read(&self) -> Result<Option<Keys>, String> {
        match self {
            Self::SecretFile(file) => {
                let text = read(file)?;
                // Editors and `echo` end a line that is none of the secret.
                let secret = text.strip_suffix(b"\n").unwrap_or(&text);
                let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
                Keys::secret(secret).map_err(|why| format!("{}: {why}", file.display()))
            }
            Self::SecretVariable(name) => match std::env::var_os(name) {
                None => Err(format!("there is no variable {name:?} in the environment")),
                Some(value) => Keys::secret(value.as_encoded_bytes())
                    .map_err(|why| format!("the variable {name:?}: {why}")),
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

/// `[identity_hook]`: how the back end is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityHookConfig {
    /// Headers of the client that are passed on, in small letters.
    pub headers: Vec<String>,
    /// From the question to the whole answer.
    pub timeout: Duration,
    /// How long an answer holds that does not say so itself; `None`: for this once.
    pub cache_time: Option<Duration>,
    /// Answers that are kept.
    pub cache_entries: u32,
    /// Requests to the back end at a time; further ones queue.
    pub concurrency: u32,
    /// Handshakes and requests that may wait for answers.
    pub waiting: u32,
    /// Failures within ten seconds, if most requests fail, after which the back end is not asked for `pause`.
    pub failures: u32,
    /// How long the back end is left alone after that.
    pub pause: Duration,
    /// As of [`PublishedKeySet::ca`].
    pub ca: Option<PathBuf>,
}

/// `[pam]`: how passwords are judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PamConfig {
    /// What browsers call the place that the password is for.
    pub realm: String,
    /// Helper processes at a time; at least 1.
    pub helpers: u32,
    /// After so long without anything to do a helper is ended.
    pub helper_idle: Duration,
    /// From the request to the answer, what waits for a helper included.
    pub timeout: Duration,
    /// Requests that may wait for answers, of each service.
    pub waiting: u32,
    /// How long an answer that names a user is kept; `None`: for this once.
    pub cache_time: Option<Duration>,
    /// Wrong passwords of one address; `None`: as many as it likes.
    pub wrong_per_address: Option<Rate>,
}
