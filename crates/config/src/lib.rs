//! Reads the configuration from a TOML file, checks it, and returns it as a [`Config`].
//!
//! `directives` lists the directives. `raw` reads the values of these directives from the file.
//! `checked` applies the rules that concern several values, and builds the plain types of `types`.
//! `effective` records the origin of each value and compares two configurations. `reference`
//! generates docs/reference/config.md. `account` looks up the user of the server process and the
//! user's access rights. All problems of a file are reported at once.
//!
//! The crate opens no sockets and starts nothing, except that a check loads PAM's library. Other crates apply a
//! configuration.

#![forbid(unsafe_code)]

use std::cell::LazyCell;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use veche_terminal::{ProblemReport, plain, read, read_text};
use veche_tls::{Certificate, Roots};

mod account;
mod acme;
mod agreed;
mod checked;
mod directives;
mod effective;
mod engine;
mod example;
mod excerpt;
#[cfg(test)]
mod generated_page;
mod hooks;
mod identity;
mod limits;
mod names;
mod namespaces;
mod rates;
mod raw;
mod readiness;
#[cfg(test)]
mod reference;
mod secret;
mod template;
mod types;
mod value;

#[cfg(test)]
mod tests;

pub use account::{Account, AccountError};
pub use acme::{AcmeCertificate, AcmeConfig};
pub use agreed::AGREED;
pub use checked::{EXPIRY_WARNING_DAYS, expires};

pub use hooks::HooksConfig;
pub use identity::{IdentityHookConfig, JwtConfig, KeySource, PamConfig, PublishedKeySet};
pub use names::{CertificateField, ChannelPattern, IdentitySource, OriginRule};
pub use namespaces::namespaces;
pub use readiness::problems;
pub use secret::{SecretSource, SecretValue};
pub use template::Template;
pub use types::*;
pub use value::WORKERS_MAX;

/// Reads and checks the file at `path`. The report contains every problem.
pub fn load(path: &Path) -> Result<Config, ProblemReport> {
    parse(path, &read(path)?)
}

/// Checks `text`, the content of the file at `path`. Relative paths are resolved against the file's
/// folder, and the report names the file.
pub fn parse(path: &Path, text: &str) -> Result<Config, ProblemReport> {
    let probed = LazyCell::new(veche_pam::client::probe);
    checked::check(
        path,
        text,
        &checked::Environment {
            is_folder: &Path::is_dir,
            is_file: &Path::is_file,
            real: &real,
            is_world_readable: &is_world_readable,
            certificate: &|certificate, key| match Certificate::read(certificate, key) {
                Ok(read) => Ok(checked::CertificateFacts {
                    valid_from_s: read.valid_from_s(),
                    valid_until_s: read.valid_until_s(),
                    is_key_exposed: read.is_key_exposed(),
                }),
                Err(error) => Err(error.to_string()),
            },
            client_ca: &|file| match Roots::read(file) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            jwt_keys: &|source| {
                let keys = source.read()?;
                Ok(keys.and_then(|keys| keys.short_secret()))
            },
            pam: &|service| pam(service, &probed),
            secret: &secret,
            state_folder: state_folder(),
            now_s: unix_now_s(),
        },
    )
}

/// Checks a configuration that an earlier check accepted. Files of certificates and token keys are not read again, since
/// one that has become invalid must not prevent a start. Files of secrets are read, since the result contains them.
pub fn parse_again(path: &Path, text: &str) -> Result<Config, ProblemReport> {
    checked::check(
        path,
        text,
        &checked::Environment {
            is_folder: &|_| true,
            is_file: &|_| true,
            real: &|_| None,
            is_world_readable: &|_| false,
            certificate: &|_, _| Ok(checked::CertificateFacts::unchecked()),
            client_ca: &|_| Ok(()),
            jwt_keys: &|_| Ok(None),
            pam: &|_| Ok(()),
            secret: &secret,
            state_folder: state_folder(),
            now_s: unix_now_s(),
        },
    )
}

/// Returns the canonical path; for a file that does not exist, the path that it would have.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| {
        let name = path.file_name()?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        Some(real(folder)?.join(name))
    })
}

/// Returns whether users besides the owner and group may read a file.
fn is_world_readable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

/// Checks that a PAM service can be used: a file with its rules exists, and PAM's library can be loaded. The result of
/// loading the library is cached in `library`.
fn pam(
    service: &veche_pam::PamService,
    library: &LazyCell<Result<(), String>, impl FnOnce() -> Result<(), String>>,
) -> Result<(), String> {
    if !service.files().iter().any(|file| file.is_file()) {
        return Err(service.missing());
    }
    LazyCell::force(library).clone()
}

/// Returns the state folder that systemd passes in an environment variable (systemd.exec(5)). The server process inherits
/// the variable from the supervisor.
fn state_folder() -> Option<PathBuf> {
    let all = std::env::var_os("STATE_DIRECTORY")?;
    let first = std::env::split_paths(&all).next();
    first.filter(|folder| folder.is_absolute())
}

/// A file with a secret of this length in bytes or more is rejected, since it was probably named by mistake.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Reads a configured secret. The server process inherits its environment variables from the supervisor.
fn secret(source: &SecretSource) -> Result<SecretValue, String> {
    match source {
        SecretSource::Here(secret) => Ok(secret.clone()),
        SecretSource::File(path) => {
            let wrong = |why: &str| format!("{}: {why}", path.display());
            let mut text = String::new();
            let file = veche_files::read(path).map_err(|error| wrong(&plain(&error)))?;
            file.take(SECRET_BYTES_MAX + 1)
                .read_to_string(&mut text)
                .map_err(|error| wrong(&plain(&error)))?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            match text.strip_suffix('\r').unwrap_or(text) {
                "" => Err(wrong("it is empty")),
                text if text.len() as u64 >= SECRET_BYTES_MAX => {
                    Err(wrong("it has 64 KiB or more, so it can't be a secret"))
                }
                text => Ok(SecretValue::new(text.to_owned())),
            }
        }
        SecretSource::Variable(name) => match std::env::var(name) {
            Ok(text) if !text.is_empty() => Ok(SecretValue::new(text)),
            _ => Err(format!(
                "the environment variable {name} is not set, or is not UTF-8"
            )),
        },
    }
}

/// Returns the Unix time in milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "people read this wall-clock time, and workers never call this"
)]
pub fn unix_now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Returns the Unix time in seconds.
#[expect(
    clippy::disallowed_methods,
    reason = "certificates are valid by wall-clock time, and workers never call this"
)]
pub fn unix_now_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// Returns the control socket's path from the file at `path`, even if the rest of the file is invalid: a running server
/// has to be stoppable while its file is being edited.
pub fn control_of(path: &Path) -> io::Result<PathBuf> {
    Ok(checked::control_of(path, &read_text(path)?))
}
