//! The source code of an application: a script and its modules.
//!
//! Each file is read once and cached, so that all workers run the same code even if the files change.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// The largest source file in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The longest module name in bytes.
const NAME_BYTES_MAX: usize = 200;

/// The reason why source code can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// The file can't be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The path of the source file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The file is larger than 16 MiB.
    #[error("{}: the file is larger than 16 MiB", path.display())]
    TooLarge {
        /// The path of the source file.
        path: PathBuf,
    },
    /// The module name is invalid.
    #[error(
        "'{0}' is not a module name: allowed are letters, digits, '_' and '-', with dots between folders"
    )]
    BadName(String),
}

/// A snapshot of an application's source.
#[derive(Debug)]
pub struct SourceCode {
    /// The folder that is searched for modules first.
    folder: PathBuf,
    /// The folder that is searched for modules after `folder`. Paths in tracebacks are relative to
    /// it.
    root: PathBuf,
    script: PathBuf,
    files: Mutex<BTreeMap<PathBuf, Arc<str>>>,
}

impl SourceCode {
    /// Reads a script. Modules are read when they are first required.
    ///
    /// # Errors
    /// The file can't be read or is too large.
    pub fn read(script: &Path) -> Result<Self, CodeError> {
        let folder = script.parent().unwrap_or(Path::new(""));
        Self::read_within(folder, script)
    }

    /// Reads a script below a folder; its modules may be in that folder or beside the script.
    ///
    /// # Errors
    /// Like [`read`](Self::read).
    pub fn read_within(root: &Path, script: &Path) -> Result<Self, CodeError> {
        let folder = script.parent().unwrap_or(Path::new("")).to_owned();
        let code = Self {
            folder,
            root: root.to_owned(),
            script: script.to_owned(),
            files: Mutex::default(),
        };
        code.file(script)?;
        Ok(code)
    }

    /// Returns the files read so far, for a file watcher.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.lock().keys().cloned().collect()
    }

    /// Returns the script's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether both snapshots have the same script and the same files with the same content. To compare a file
    /// that only this snapshot has read so far, `other` reads the file too.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        if std::ptr::eq(self, other) {
            return true;
        }
        let files = self.files.lock().clone();
        let is_there = |(path, text): (&PathBuf, &Arc<str>)| {
            let found = other.file(path);
            found.is_ok_and(|found| found == *text)
        };
        self.script == other.script
            && files.iter().all(is_there)
            && files.len() == other.files.lock().len()
    }

    pub(crate) fn script(&self) -> Result<(String, Arc<str>), CodeError> {
        let name = self.chunk_name(&self.script);
        Ok((name, self.file(&self.script)?))
    }

    /// Returns a module's source and its name in tracebacks; `None` if there is no such file.
    pub(crate) fn module(&self, name: &str) -> Result<Option<(String, Arc<str>)>, CodeError> {
        if !is_module_name(name) {
            return Err(CodeError::BadName(name.to_owned()));
        }
        let path: PathBuf = name.split('.').collect();
        let names = [path.with_extension("lua"), path.join("init.lua")];
        let folders = [&self.folder, &self.root];
        for path in folders
            .into_iter()
            .flat_map(|folder| names.each_ref().map(|name| folder.join(name)))
        {
            match self.file(&path) {
                Ok(text) => return Ok(Some((self.chunk_name(&path), text))),
                Err(CodeError::Unreadable { error, .. })
                    if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn chunk_name(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.root).unwrap_or(path);
        format!("@{}", path.display())
    }

    fn file(&self, path: &Path) -> Result<Arc<str>, CodeError> {
        let mut files = self.files.lock();
        if let Some(text) = files.get(path) {
            return Ok(Arc::clone(text));
        }
        let unreadable = |error| CodeError::Unreadable {
            path: path.to_owned(),
            error,
        };
        if fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
            return Err(CodeError::TooLarge {
                path: path.to_owned(),
            });
        }
        let text: Arc<str> = fs::read_to_string(path).map_err(unreadable)?.into();
        files.insert(path.to_owned(), Arc::clone(&text));
        Ok(text)
    }
}

fn is_module_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        !part.is_empty() && part.bytes().all(is_letter)
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_part)
}
