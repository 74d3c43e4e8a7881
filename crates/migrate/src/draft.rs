//! A configuration under construction: its sections, its secrets, and notes for the administrator
//! who checks it.

use std::fmt;

/// A section with its lines.
struct Section {
    header: &'static str,
    lines: Vec<String>,
}

/// A secret that is written to a separate file.
pub(super) struct SecretFile {
    /// The setting that contained the secret.
    pub(super) setting: String,
    pub(super) file: &'static str,
    pub(super) content: String,
}

/// A configuration under construction.
#[derive(Default)]
pub(super) struct ConfigDraft {
    sections: Vec<Section>,
    secrets: Vec<SecretFile>,
    notes: Vec<String>,
}

/// Formats a text as a TOML string.
pub(super) fn string_literal(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Formats texts as a TOML array.
pub(super) fn list_literal(texts: &[String]) -> String {
    toml::Value::from(texts.to_vec()).to_string()
}

impl ConfigDraft {
    /// Starts a section; the following lines belong to it.
    pub(super) fn section(&mut self, header: &'static str) {
        self.sections.push(Section {
            header,
            lines: Vec::new(),
        });
    }

    /// Adds a setting with a TOML value.
    pub(super) fn set(&mut self, name: &str, value: impl fmt::Display) {
        if let Some(section) = self.sections.last_mut() {
            section.lines.push(format!("{name} = {value}"));
        }
    }

    /// Adds a setting with a text value, if there is one.
    pub(super) fn set_text(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.set(name, string_literal(&value));
        }
    }

    /// Adds a secret to be written to a file.
    pub(super) fn secret(&mut self, setting: &str, file: &'static str, content: String) {
        self.secrets.push(SecretFile {
            setting: setting.to_owned(),
            file,
            content,
        });
    }

    /// Adds a note for the administrator who checks the configuration.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(super) fn secrets(&self) -> &[SecretFile] {
        &self.secrets
    }
}

impl fmt::Display for ConfigDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Written by `veche migrate centrifugo`. Check it: veche check -c FILE"
        )?;
        for note in &self.notes {
            writeln!(f, "# {}", note.replace(['\n', '\r'], " "))?;
        }
        let sections = self.sections.iter();
        for section in sections.filter(|section| !section.lines.is_empty()) {
            writeln!(f, "\n{}", section.header)?;
            for line in &section.lines {
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }
}
