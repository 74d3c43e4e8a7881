//! The authority that a script names for TLS to a database: its file is read before the driver sees it, whose own words
//! for a bad one do not say which file it is.

use std::path::PathBuf;

use veche_calls::{CallError, CallErrorKind, TlsMode};
use veche_tls::Roots;

/// What the file has, if one is named; `whose` begins the words of the error.
pub(crate) async fn read(whose: &'static str, tls: &TlsMode) -> Result<Option<Roots>, CallError> {
    let TlsMode::Authority(file) = tls else {
        return Ok(None);
    };
    let fault = |why: String| CallError::new(CallErrorKind::Invalid, format!("{whose}: {why}"));
    let file = PathBuf::from(file);
    let read = tokio::task::spawn_blocking(move || Roots::read(&file)).await;
    let roots = read.map_err(|error| fault(error.to_string()))?;
    roots.map(Some).map_err(|error| fault(error.to_string()))
}
