//! Authentication with libpam, and the interpretation of its return codes.

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt as _;

use crate::raw::{self, Functions, PamCredentials};
use crate::wire::{PamReply, PamRequest};

/// The functions of libpam. Only processes that need the functions load the library.
pub struct PamLibrary(Functions);

impl PamLibrary {
    /// Loads the library.
    ///
    /// # Errors
    /// The library is missing, or the program is linked statically and can't load it. The error is a text for the
    /// operator.
    pub fn load() -> Result<Self, String> {
        match Functions::load() {
            Ok(functions) => Ok(Self(functions)),
            Err(why) => Err(format!(
                "libpam can't be loaded; it is not installed, or this is the static build, which can't load it: {why} (Debian: apt install libpam0g)"
            )),
        }
    }

    /// Checks a password and the validity of the account. Takes as long as the modules do, which is seconds for a wrong
    /// password.
    pub fn authenticate(&self, request: &PamRequest) -> PamReply {
        let service = &request.service;
        if !service.files().iter().any(|file| file.is_file()) {
            return PamReply::Failed(service.missing());
        }
        if service.folder().is_some() && !self.0.knows_folders() {
            return PamReply::Failed(
                "a PAM service that is given as a path needs Linux-PAM 1.4 or later".to_owned(),
            );
        }
        let folder = service.folder();
        let folder = folder.map(|folder| CString::new(folder.as_os_str().as_bytes()));
        let (Ok(name), Ok(folder), Ok(client), Some(talk)) = (
            CString::new(service.name()),
            folder.transpose(),
            CString::new(request.client.as_str()),
            PamCredentials::new(&request.user, &request.password),
        ) else {
            return PamReply::Refused("the user name or password contains a NUL".to_owned());
        };
        let outcome = self.0.start(&name, folder.as_deref(), &talk);
        let outcome = outcome.and_then(|mut transaction| {
            transaction.set_client(&client)?;
            transaction.authenticate()?;
            transaction.account()?;
            Ok(transaction.user().map(raw::account_name))
        });
        match outcome {
            Ok(user) => match user.map(CString::into_string) {
                Some(Ok(user)) => PamReply::Accepted(user),
                _ => PamReply::Failed("the user name that PAM returned is not UTF-8".to_owned()),
            },
            Err(code) if is_internal_error(code) => PamReply::Failed(self.0.describe(code)),
            Err(code) => PamReply::Refused(self.0.describe(code)),
        }
    }
}

/// Returns whether a code means that PAM could not decide. Any code that is not clearly a system problem counts as a
/// refusal, because modules use codes loosely: a module that runs a script reports the script's refusal as a system
/// error.
fn is_internal_error(code: c_int) -> bool {
    matches!(
        code,
        raw::OPEN_ERR
            | raw::SYMBOL_ERR
            | raw::BUF_ERR
            | raw::AUTHINFO_UNAVAIL
            | raw::ABORT
            | raw::MODULE_UNKNOWN
    )
}
