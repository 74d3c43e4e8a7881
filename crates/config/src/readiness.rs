//! Problems that would prevent a server with a valid configuration from starting or working: unwritable folders and
//! unreadable secrets. Only `veche check` looks for them in advance.
//!
//! Access rights are those of the configured user. Folders that systemd creates for a service (`RuntimeDirectory=` and
//! the like) may be missing.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use rustix::fs::{Access, access};
use veche_logging as logging;
use veche_terminal::{Problem, SourceLocation};

use super::directives::Section;
use super::effective::{Setting, ValueOrigin};
use super::excerpt;
use super::secret::SecretSource;
use super::types::Config;
use super::value::{CertificateSource, DirectiveValue};
use crate::account::{AccessRight, Account, AccountError};

/// The access that a path needs.
#[derive(Clone, Copy)]
enum RequiredAccess {
    /// A file that the server process can write, in a folder where the given process can create and replace it.
    FileIn(AccessedBy),
    /// A folder for files, created if it is missing.
    Folder(AccessedBy),
    /// A readable file: a secret, a key or a certificate.
    Secret,
}

/// The process that accesses a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AccessedBy {
    Supervisor,
    Server,
}

/// Returns all problems of a configuration, located in its text. The list is empty if this user can't check them.
pub fn problems(config: &Config, text: &str) -> Vec<Problem> {
    let mut search = ReadinessCheck {
        config,
        account: None,
        found: Vec::new(),
    };
    match Account::of(config.server.run_as.as_ref()) {
        Ok(account) => search.account = account,
        // The access rights of this user are irrelevant, because this user can't run the server as `server.user`.
        Err(AccountError::NotRoot { .. }) => return Vec::new(),
        Err(error) => {
            let user = search.setting(Section::Server, "user");
            search.add(user, error.to_string());
        }
    }
    search.paths();
    search.secrets();
    let mut found = search.found;
    found.sort_by_key(|problem| problem.place);
    excerpt::explain(&mut found, text);
    found
}

struct ReadinessCheck<'c> {
    config: &'c Config,
    /// The account of the server process, if it is not the current one.
    account: Option<Account>,
    found: Vec<Problem>,
}

impl<'c> ReadinessCheck<'c> {
    fn paths(&mut self) {
        let config = self.config;
        let server = &config.server;
        let control = RequiredAccess::FileIn(AccessedBy::Supervisor);
        self.path(Section::Server, "control", Some(&server.control), control);
        // The supervisor creates log files for the server process.
        let log = RequiredAccess::FileIn(match &self.account {
            Some(_) => AccessedBy::Supervisor,
            None => AccessedBy::Server,
        });
        let file = server.log.file.as_deref();
        let file = file.filter(|file| logging::standard(file).is_none());
        self.path(Section::Server, "log_file", file, log);
        let access_log = config.access_log.as_ref().map(|log| &*log.file);
        let access_log = access_log.filter(|file| logging::standard(file).is_none());
        self.path(Section::AccessLog, "file", access_log, log);
        let blocks = config.api.blocks.as_deref();
        let own = RequiredAccess::FileIn(AccessedBy::Server);
        self.path(Section::Api, "blocks", blocks, own);
        let history = config.history.as_ref().map(|history| &*history.path);
        let folder = RequiredAccess::Folder(AccessedBy::Server);
        self.path(Section::History, "path", history, folder);
        let snapshots = server.snapshots.as_deref();
        self.path(Section::Server, "snapshots", snapshots, folder);
    }

    fn secrets(&mut self) {
        let base = super::checked::base_of(&self.config.file);
        for setting in &self.config.effective.settings {
            let files: Vec<&Path> = match &setting.value {
                Some(DirectiveValue::Secrets(list)) => list.iter().filter_map(file_of).collect(),
                Some(DirectiveValue::Certificates(list)) => {
                    list.iter().flat_map(files_of).collect()
                }
                Some(DirectiveValue::Text(path)) if setting.directive.name.ends_with("_file") => {
                    match setting.directive.name {
                        "log_file" => continue,
                        _ => vec![Path::new(path)],
                    }
                }
                _ => continue,
            };
            for file in files {
                self.check_access(Some(setting), &base.join(file), RequiredAccess::Secret);
            }
        }
    }

    fn path(&mut self, section: Section, name: &str, path: Option<&Path>, need: RequiredAccess) {
        if let Some(path) = path {
            let setting = self.setting(section, name);
            self.check_access(setting, path, need);
        }
    }

    fn check_access(&mut self, setting: Option<&'c Setting>, path: &Path, need: RequiredAccess) {
        let fault = match need {
            RequiredAccess::Secret => self.unreadable(path),
            RequiredAccess::FileIn(accessed_by) => self.unwritable_file(path, accessed_by),
            RequiredAccess::Folder(accessed_by) => self.unwritable_folder(path, accessed_by),
        };
        if let Some(fault) = fault {
            self.add(setting, fault);
        }
    }

    fn unreadable(&self, file: &Path) -> Option<String> {
        match self.may(file, AccessRight::Read, AccessedBy::Server) {
            true => None,
            false => Some(self.refusal("read", file, AccessedBy::Server)),
        }
    }

    fn unwritable_file(&self, file: &Path, accessed_by: AccessedBy) -> Option<String> {
        // An existing log is written by the server process, whichever user created it.
        if file.is_file() && !self.may(file, AccessRight::Write, AccessedBy::Server) {
            return Some(self.refusal("write", file, AccessedBy::Server));
        }
        self.unwritable_folder(file.parent()?, accessed_by)
    }

    fn unwritable_folder(&self, folder: &Path, accessed_by: AccessedBy) -> Option<String> {
        let there = folder.ancestors().find(|folder| folder.exists());
        if there != Some(folder) && made_by_systemd(folder) {
            return None;
        }
        let folder = match there {
            Some(folder) => folder,
            None => Path::new("."),
        };
        let may = |right| self.may(folder, right, accessed_by);
        match may(AccessRight::Write) && may(AccessRight::Enter) {
            true => None,
            false => Some(self.refusal("create files in", folder, accessed_by)),
        }
    }

    fn may(&self, path: &Path, right: AccessRight, accessed_by: AccessedBy) -> bool {
        match &self.account {
            Some(account) if accessed_by == AccessedBy::Server => account.may_reach(path, right),
            _ => {
                let rights = match right {
                    AccessRight::Read => Access::READ_OK,
                    AccessRight::Write => Access::WRITE_OK,
                    AccessRight::Enter => Access::EXEC_OK,
                };
                access(path, rights).is_ok()
            }
        }
    }

    fn refusal(&self, what: &str, path: &Path, accessed_by: AccessedBy) -> String {
        let subject = match &self.account {
            Some(_) if accessed_by == AccessedBy::Server => "server.user",
            _ => "this user",
        };
        let path_shown = path.display();
        match fs::metadata(path) {
            Ok(about) => format!(
                "{subject} can't {what} {path_shown}, which belongs to user {} and group {} and has the mode {:o}",
                about.uid(),
                about.gid(),
                about.mode() & 0o7777
            ),
            Err(_) => format!("{subject} can't {what} {path_shown}"),
        }
    }

    fn setting(&self, section: Section, name: &str) -> Option<&'c Setting> {
        let mut all = self.config.effective.settings.iter();
        all.find(|one| one.directive.section == section && one.directive.name == name)
    }

    fn add(&mut self, setting: Option<&Setting>, why: String) {
        let place = setting.and_then(|setting| match setting.origin {
            ValueOrigin::Line(line) => Some(SourceLocation { line, column: 1 }),
            ValueOrigin::Default => None,
        });
        let name = setting.map_or("", |setting| setting.directive.name);
        self.found.push(Problem {
            file: self.config.file.clone(),
            place,
            message: format!("{name}: {why}"),
            excerpt: None,
        });
    }
}

fn file_of(source: &SecretSource) -> Option<&Path> {
    match source {
        SecretSource::File(path) => Some(path),
        _ => None,
    }
}

fn files_of(source: &CertificateSource) -> Vec<&Path> {
    match source {
        CertificateSource::Files { certificate, key } => vec![certificate.as_ref(), key.as_ref()],
        CertificateSource::Acme(_) => Vec::new(),
    }
}

/// Returns whether systemd may create a missing folder, or one of its parents, for a service (systemd.exec(5)).
pub(super) fn made_by_systemd(folder: &Path) -> bool {
    const PARENTS: [&str; 4] = ["/run", "/var/lib", "/var/log", "/var/cache"];
    PARENTS.iter().any(|parent| {
        folder.strip_prefix(parent).is_ok_and(|rest| {
            matches!(rest.components().next(), Some(Component::Normal(name)) if !Path::new(parent).join(name).exists())
        })
    })
}
