//! A password judged by libpam: what it is told, and what its numbers mean to us.

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt as _;

use crate::raw::{self, Functions, PamCredentials};
use crate::wire::{PamReply, PamRequest};

/// libpam, loaded.
pub struct PamLibrary(Functions);

impl PamLibrary {
    /// Loads it.
    ///
    /// # Errors
    /// It is not there, or the program was linked in a way that can load nothing; as a line to act on.
    pub fn load() -> Result<Self, String> {
        match Functions::load() {
            Ok(functions) => Ok(Self(functions)),
            Err(why) => Err(format!(
                "PAM is not on this machine, or the program is the static one, which can't load it: {why} (Debian: apt install libpam0g)"
            )),
        }
    }

    /// Judges name and password, and whether the account is in order. Takes as long as the modules do, which is seconds
    /// for a wrong password.
    pub fn authenticate(&self, question: &PamRequest) -> PamReply {
        let service = &question.service;
        if !service.files().iter().any(|file| file.is_file()) {
            return PamReply::Failed(service.missing());
        }
        if service.folder().is_some() && !self.0.knows_folders() {
            return PamReply::Failed("folders of rules need Linux-PAM 1.4".to_owned());
        }
        let folder = service.folder();
        let folder = folder.map(|folder| CString::new(folder.as_os_str().as_bytes()));
        let (Ok(name), Ok(folder), Ok(client), Some(talk)) = (
            CString::new(service.name()),
            folder.transpose(),
            CString::new(question.client.as_str()),
            PamCredentials::new(&question.user, &question.password),
        ) else {
            return PamReply::Refused("there is a NUL in it".to_owned());
        };
        let judged = self.0.start(&name, folder.as_deref(), &talk);
        let judged = judged.and_then(|mut transaction| {
            transaction.set_client(&client)?;
            transaction.authenticate()?;
            transaction.account()?;
            Ok(transaction.user().map(raw::account_name))
        });
        match judged {
            Ok(user) => match user.map(CString::into_string) {
                Some(Ok(user)) => PamReply::Accepted(user),
                _ => PamReply::Failed("the user that PAM names is no text".to_owned()),
            },
            Err(code) if is_internal_error(code) => PamReply::Failed(self.0.describe(code)),
            Err(code) => PamReply::Refused(self.0.describe(code)),
        }
    }
}

/// Whether a number says that PAM could not find out. Modules are free with their numbers: one that runs a script calls
/// the script's "no" a system error, so what is not clearly trouble of the machine's is a refusal.
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
