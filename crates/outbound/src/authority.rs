//! The file of the authority that a script names for TLS to a database, looked at before the driver does: its own
//! words for a bad one do not say which file it is.

use std::path::PathBuf;

use veche_calls::{Fault, FaultKind, Tls};
use veche_tls::{Believe, Trust};

/// Whether the file, if one is named, can be read and has certificates; `whose` begins the words of the error.
pub(crate) async fn check(whose: &'static str, tls: &Tls) -> Result<(), Fault> {
    let Tls::Authority(file) = tls else {
        return Ok(());
    };
    let believe = Believe::File(PathBuf::from(file));
    let read = tokio::task::spawn_blocking(move || Trust::new(&believe).map(drop)).await;
    match read {
        Ok(Ok(())) | Err(_) => Ok(()),
        Ok(Err(error)) => Err(Fault::new(FaultKind::Invalid, format!("{whose}: {error}"))),
    }
}
