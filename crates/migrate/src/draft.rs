//! A configuration while it is written: its sections, its secrets, and what a person has to know of it.

use std::fmt;

/// A section with its lines.
struct Section {
    header: &'static str,
    lines: Vec<String>,
}

/// A secret, for a file of its own.
pub(super) struct SecretFile {
    /// The setting that had it.
    pub(super) setting: String,
    pub(super) file: &'static str,
    pub(super) content: String,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct ConfigDraft {
    sections: Vec<Section>,
    secrets: Vec<SecretFile>,
    notes: Vec<String>,
}

/// A text as TOML has it.
pub(super) fn string_literal(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A list of texts as TOML has it.
pub(super) fn list_literal(texts: &[String]) -> String {
    toml::Value::from(texts.to_vec()).to_string()
}

impl ConfigDraft {
    /// Begins a section; the lines that follow are its own.
    pub(super) fn section(&mut self, header: &'static str) {
        self.sections.push(Section {
            header,
            lines: Vec::new(),
        });
    }

    /// Adds a setting, whose value is TOML.
    pub(super) fn set(&mut self, name: &str, value: impl fmt::Display) {
        if let Some(section) = self.sections.last_mut() {
            section.lines.push(format!("{name} = {value}"));
        }
    }

    /// Adds a setting if it has a value, which is a text.
    pub(super) fn set_text(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.set(name, string_literal(&value));
        }
    }

    /// Has a secret written into a file.
    pub(super) fn secret(&mut self, setting: &str, file: &'static str, content: String) {
        self.secrets.push(SecretFile {
            setting: setting.to_owned(),
            file,
            content,
        });
    }

    /// Adds a note for the reader of the configuration.
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
