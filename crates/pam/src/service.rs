//! PAM services. A service has a file of rules, in `/etc/pam.d` or in another folder.

use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The folders in which Linux-PAM looks for rules: the administrator's, then the distribution's (pam.d(5)).
const FOLDERS: [&str; 2] = ["/etc/pam.d", "/usr/lib/pam.d"];

/// A PAM service: its name, and the folder with its rules if they are not in the system's folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PamService {
    name: String,
    folder: Option<PathBuf>,
}

impl PamService {
    /// Parses `NAME` or `/FOLDER/NAME`.
    ///
    /// # Errors
    /// The reason, as a message for the operator.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (folder, name) = match text.rsplit_once('/') {
            None => (None, text),
            Some((folder, name)) if folder.starts_with('/') => (Some(PathBuf::from(folder)), name),
            Some(_) => {
                return Err(
                    "a PAM service is the name of a file in /etc/pam.d or an absolute path"
                        .to_owned(),
                );
            }
        };
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(format!(
                "a PAM service name must be in lower case: {:?} instead of {name:?}",
                name.to_ascii_lowercase()
            ));
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty()
            || name.len() > NAME_BYTES_MAX
            || name.starts_with('.')
            || !name.bytes().all(fits)
        {
            return Err(format!(
                "{name:?} is not a valid PAM service name: expected 1 to {NAME_BYTES_MAX} characters of a-z, 0-9, \"_\", \"-\" and \".\", the first of them not \".\""
            ));
        }
        if text.contains('\0') {
            return Err("a path can't contain a NUL".to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            folder,
        })
    }

    /// Returns the name under which PAM looks for the service.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder of the service's rules, if not the system's.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Returns the possible files of the service's rules; PAM uses the first that exists.
    pub fn files(&self) -> Vec<PathBuf> {
        match &self.folder {
            Some(folder) => vec![folder.join(&self.name)],
            None => FOLDERS
                .iter()
                .map(|folder| Path::new(folder).join(&self.name))
                .collect(),
        }
    }

    /// Returns an error message for a service without [files](Self::files).
    pub fn missing(&self) -> String {
        let file = &self.files()[0];
        format!(
            "the file {} does not exist, and PAM would fall back to its rules for unknown services",
            file.display()
        )
    }
}

impl fmt::Display for PamService {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.folder {
            None => out.write_str(&self.name),
            Some(folder) => write!(out, "{}", folder.join(&self.name).display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        let service = PamService::parse("veche").expect("a name");
        assert_eq!((service.name(), service.folder()), ("veche", None));
        assert_eq!(service.files()[0], Path::new("/etc/pam.d/veche"));
        assert_eq!(service.to_string(), "veche");
        let service = PamService::parse("/srv/pam/chat-2").expect("a path");
        assert_eq!(service.name(), "chat-2");
        assert_eq!(service.folder(), Some(Path::new("/srv/pam")));
        assert_eq!(service.files(), [Path::new("/srv/pam/chat-2")]);
        assert_eq!(service.to_string(), "/srv/pam/chat-2");
    }

    #[test]
    fn invalid_services() {
        let long = "a".repeat(65);
        for text in [
            "", "/srv/", "..", "/srv/..", ".x", "a b", "ä", "a\0", "/a\0/b", "pam/x", &long,
        ] {
            assert!(PamService::parse(text).is_err(), "{text:?}");
        }
        let why = PamService::parse("/srv/Chat").expect_err("capitals");
        assert!(why.contains("\"chat\""), "{why}");
    }
}
