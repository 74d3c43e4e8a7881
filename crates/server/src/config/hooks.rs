//! `[hooks]`, checked: who decides on clients' commands.

use std::path::PathBuf;
use std::time::Duration;

use veche_calls::SecretUrl;
use veche_frontends::hooks::Kind;

use super::types::Secret;

/// How the back end is asked. Without any URL it is not, and an application decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hooks {
    /// By kind; `None`: that is not asked.
    pub(crate) urls: [Option<SecretUrl>; Kind::ALL.len()],
    /// From the question to the whole answer.
    pub(crate) timeout: Duration,
    /// What requests are signed with; with none they are not.
    pub(crate) secrets: Vec<Secret>,
    /// The files that some of them were read from.
    pub(crate) files: Vec<PathBuf>,
    /// Headers of the client's request that are passed on, in small letters.
    pub(crate) headers: Vec<String>,
    /// Those that it may say in its connect command.
    pub(crate) client_headers: Vec<String>,
    /// Questions of one kind that may wait for answers.
    pub(crate) waiting: u32,
    /// Failures in a row after which nobody is asked for `pause`.
    pub(crate) failures: u32,
    pub(crate) pause: Duration,
    /// As of [`Published::ca`](super::Published::ca).
    pub(crate) ca: Option<PathBuf>,
}

impl Hooks {
    /// Where that is asked.
    pub(crate) fn url(&self, kind: Kind) -> Option<&SecretUrl> {
        self.urls[kind as usize].as_ref()
    }
}
