//! Reads the CA file that a script names for TLS to a database. The file is read here rather than by the driver, whose errors
//! don't name the file.

use std::path::PathBuf;

use veche_calls::{CallError, CallErrorKind, TlsMode};
use veche_tls::Roots;

/// Reads the CA file that `tls` names, if any; errors begin with `owner`.
pub(crate) async fn read(owner: &'static str, tls: &TlsMode) -> Result<Option<Roots>, CallError> {
    let TlsMode::Authority(file) = tls else {
        return Ok(None);
    };
    let fault = |why: String| CallError::new(CallErrorKind::Invalid, format!("{owner}: {why}"));
    let file = PathBuf::from(file);
    let read = tokio::task::spawn_blocking(move || Roots::read(&file)).await;
    let roots = read.map_err(|error| fault(error.to_string()))?;
    roots.map(Some).map_err(|error| fault(error.to_string()))
}
