//! Problems that would prevent a server with a valid configuration from starting or working: unwritable folders and
//! unreadable secrets. Only `veche check` looks for them; a start runs into them.
//!
//! Access rights are those of the configured user. Folders that systemd creates for a service (`RuntimeDirectory=` and
//! the like) may be missing.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use rustix::fs::{Access, access};
use veche_logging as logging;
use veche_terminal::{Place, Problem};

use super::directives::Section;
use super::effective::{Origin, Setting};
use super::excerpt;
use super::secret::SecretSource;
use super::types::Config;
use super::value::{CertificateSource, Value};
use crate::account::{Account, AccountError, Right};

/// The access that a path needs.
#[derive(Clone, Copy)]
enum Need {
    /// A writable file, in a folder where it can be created and replaced.
    FileIn(Whose),
    /// A folder for files, created if it is missing.
    Folder(Whose),
    /// A readable file.
    Secret,
}

/// The process that accesses it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Supervisor,
    Server,
}

/// Returns all problems of a configuration, located in its text.
pub fn faults(config: &Config, text: &str) -> Vec<Problem> {
    let mut search = Search {
        config,
        account: None,
        found: Vec::new(),
    };
    match Account::of(config.server.run_as.as_ref()) {
        Ok(account) => search.account = account,
        // The user that will start it is unknown.
        Err(AccountError::NotRoot(_)) => return Vec::new(),
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

struct Search<'c> {
    config: &'c Config,
    /// The account of the server process, if it is not the current one.
    account: Option<Account>,
    found: Vec<Problem>,
}

impl<'c> Search<'c> {
    fn paths(&mut self) {
        let config = self.config;
        let server = &config.server;
        let control = Need::FileIn(Whose::Supervisor);
        self.path(Section::Server, "control", Some(&server.control), control);
        // The supervisor creates log files for the server process.
        let log = Need::FileIn(match &self.account {
            Some(_) => Whose::Supervisor,
            None => Whose::Server,
        });
        let file = server.log.file.as_deref();
        let file = file.filter(|file| logging::standard(file).is_none());
        self.path(Section::Server, "log_file", file, log);
        let access_log = config.access_log.as_ref().map(|log| &*log.file);
        let access_log = access_log.filter(|file| logging::standard(file).is_none());
        self.path(Section::AccessLog, "file", access_log, log);
        let blocks = config.api.blocks.as_deref();
        let own = Need::FileIn(Whose::Server);
        self.path(Section::Api, "blocks", blocks, own);
        let history = config.history.as_ref().map(|history| &*history.path);
        let folder = Need::Folder(Whose::Server);
        self.path(Section::History, "path", history, folder);
        let snapshots = server.snapshots.as_deref();
        self.path(Section::Server, "snapshots", snapshots, folder);
    }

    fn secrets(&mut self) {
        let base = super::checked::base_of(&self.config.file);
        for setting in &self.config.effective.settings {
            let files: Vec<&Path> = match &setting.value {
                Some(Value::Secrets(list)) => list.iter().filter_map(file_of).collect(),
                Some(Value::Certificates(list)) => list.iter().flat_map(files_of).collect(),
                Some(Value::Text(path)) if setting.directive.name.ends_with("_file") => {
                    match setting.directive.name {
                        "log_file" => continue,
                        _ => vec![Path::new(path)],
                    }
                }
                _ => continue,
            };
            for file in files {
                self.judge(Some(setting), &base.join(file), Need::Secret);
            }
        }
    }

    fn path(&mut self, section: Section, name: &str, path: Option<&Path>, need: Need) {
        if let Some(path) = path {
            let setting = self.setting(section, name);
            self.judge(setting, path, need);
        }
    }

    fn judge(&mut self, setting: Option<&'c Setting>, path: &Path, need: Need) {
        let fault = match need {
            Need::Secret => self.unreadable(path),
            Need::FileIn(whose) => self.unwritable_file(path, whose),
            Need::Folder(whose) => self.unwritable_folder(path, whose),
        };
        if let Some(fault) = fault {
            self.add(setting, fault);
        }
    }

    fn unreadable(&self, file: &Path) -> Option<String> {
        match self.may(file, Right::Read, Whose::Server) {
            true => None,
            false => Some(self.refusal("read", file, Whose::Server)),
        }
    }

    fn unwritable_file(&self, file: &Path, whose: Whose) -> Option<String> {
        // An existing log is written by the server process, whichever user created it.
        if file.is_file() && !self.may(file, Right::Write, Whose::Server) {
            return Some(self.refusal("write", file, Whose::Server));
        }
        self.unwritable_folder(file.parent()?, whose)
    }

    fn unwritable_folder(&self, folder: &Path, whose: Whose) -> Option<String> {
        let there = folder.ancestors().find(|folder| folder.exists());
        if there != Some(folder) && made_by_systemd(folder) {
            return None;
        }
        let folder = match there {
            Some(folder) => folder,
            None => Path::new("."),
        };
        let may = |right| self.may(folder, right, whose);
        match may(Right::Write) && may(Right::Enter) {
            true => None,
            false => Some(self.refusal("make files in", folder, whose)),
        }
    }

    fn may(&self, path: &Path, right: Right, whose: Whose) -> bool {
        match &self.account {
            Some(account) if whose == Whose::Server => account.may_reach(path, right),
            _ => {
                let rights = match right {
                    Right::Read => Access::READ_OK,
                    Right::Write => Access::WRITE_OK,
                    Right::Enter => Access::EXEC_OK,
                };
                access(path, rights).is_ok()
            }
        }
    }

    fn refusal(&self, what: &str, path: &Path, whose: Whose) -> String {
        let who = match &self.account {
            Some(_) if whose == Whose::Server => "server.user",
            _ => "this user",
        };
        let path_shown = path.display();
        match fs::metadata(path) {
            Ok(about) => format!(
                "{who} can't {what} {path_shown}, which belongs to user {} and group {} and has the mode {:o}",
                about.uid(),
                about.gid(),
                about.mode() & 0o7777
            ),
            Err(_) => format!("{who} can't {what} {path_shown}"),
        }
    }

    fn setting(&self, section: Section, name: &str) -> Option<&'c Setting> {
        let mut all = self.config.effective.settings.iter();
        all.find(|one| one.directive.section == section && one.directive.name == name)
    }

    fn add(&mut self, setting: Option<&Setting>, why: String) {
        let place = setting.and_then(|setting| match setting.origin {
            Origin::Line(line) => Some(Place { line, column: 1 }),
            Origin::Default => None,
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

/// Returns whether a folder is in one that systemd creates for a service but that does not exist yet (systemd.exec(5)).
pub(super) fn made_by_systemd(folder: &Path) -> bool {
    const PARENTS: [&str; 4] = ["/run", "/var/lib", "/var/log", "/var/cache"];
    PARENTS.iter().any(|parent| {
        folder.strip_prefix(parent).is_ok_and(|rest| {
            matches!(rest.components().next(), Some(Component::Normal(name)) if !Path::new(parent).join(name).exists())
        })
    })
}
