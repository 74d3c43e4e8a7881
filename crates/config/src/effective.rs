//! The effective value of every directive and its origin, for `veche config` and for the report of what a reload
//! changes.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use veche_terminal::shown;

use super::directives::{Directive, ReloadEffect, Section};
use super::value::DirectiveValue;

/// All values in the order of the table of directives.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveConfig {
    pub(super) file: PathBuf,
    pub(super) settings: Vec<Setting>,
}

/// The value of one directive.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(super) directive: &'static Directive,
    /// The index of a repeated section; 0 otherwise.
    pub(super) index: usize,
    /// `None` if the directive is neither set nor has a default.
    pub(super) value: Option<DirectiveValue>,
    pub(super) origin: ValueOrigin,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueOrigin {
    /// No line sets the directive, so its default applies.
    Default,
    /// A line of the file.
    Line(u32),
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.directive, other.directive)
            && (self.index, &self.value, self.origin) == (other.index, &other.value, other.origin)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.as_ref().map(ToString::to_string);
        write!(
            f,
            "{}[{}].{} = {value:?} ({:?})",
            self.directive.section.name(),
            self.index,
            self.directive.name,
            self.origin
        )
    }
}

impl fmt::Display for EffectiveConfig {
    /// Formats the configuration as TOML with each value's origin; secrets are masked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = shown(&self.file).to_string();
        writeln!(
            f,
            "# The effective configuration of {file}; the comment after each value is its origin."
        )?;
        let mut table = None;
        for setting in &self.settings {
            let here = (setting.directive.section, setting.index);
            if table != Some(here) {
                writeln!(f, "\n{}", setting.directive.section.header())?;
                table = Some(here);
            }
            let origin = match setting.origin {
                ValueOrigin::Default => "default".to_owned(),
                ValueOrigin::Line(line) => format!("{file}:{line}"),
            };
            match &setting.value {
                Some(value) => writeln!(
                    f,
                    "{:<39} # {origin}",
                    format!("{} = {value}", setting.directive.name)
                )?,
                None => writeln!(
                    f,
                    "{:<39} # {origin}",
                    format!("# {} is not set", setting.directive.name)
                )?,
            }
        }
        Ok(())
    }
}

/// The differences between two configurations, as names of directives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigChanges {
    /// Changes that take effect at a reload.
    pub reload: Vec<String>,
    /// Changes that take effect at a restart only.
    pub restart: Vec<String>,
}

impl ConfigChanges {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.reload.is_empty() && self.restart.is_empty()
    }
}

impl EffectiveConfig {
    /// Returns the values for the admin page by section. Secrets are masked. Tables passed to scripts may contain
    /// secrets, so only the names of their entries are included.
    pub fn shown(&self) -> Json {
        let mut sections: Vec<(&str, usize, Vec<Json>)> = Vec::new();
        for setting in &self.settings {
            let (header, index) = (setting.directive.section.header(), setting.index);
            if sections.last().map(|last| (last.0, last.1)) != Some((header, index)) {
                sections.push((header, index, Vec::new()));
            }
            let value = setting.value.as_ref().map(|value| match value {
                DirectiveValue::Table(table) => {
                    let names = table.keys().map(|name| format!("{name} = …"));
                    format!("{{ {} }}", names.collect::<Vec<_>>().join(", "))
                }
                value => value.to_string(),
            });
            let line = match setting.origin {
                ValueOrigin::Default => None,
                ValueOrigin::Line(line) => Some(line),
            };
            let shown = json!({"name": setting.directive.name, "value": value, "line": line});
            if let Some((_, _, settings)) = sections.last_mut() {
                settings.push(shown);
            }
        }
        let sections = sections.into_iter();
        let sections =
            sections.map(|(header, _, settings)| json!({"header": header, "settings": settings}));
        json!({
            "file": shown(&self.file).to_string(),
            "sections": sections.collect::<Vec<_>>(),
        })
    }

    /// Returns what changes if `new` replaces this configuration.
    pub fn changes(&self, new: &Self) -> ConfigChanges {
        let mut changes = ConfigChanges::default();
        for setting in &self.settings {
            match new.find(setting.directive, setting.index) {
                Some(other) if other.value == setting.value => {}
                Some(_) => changes.note(setting.directive, setting.title()),
                // A removed section is reported once, for the directive that identifies it.
                None if setting.names_section() => {
                    changes.note(
                        setting.directive,
                        format!("{} removed", self.section_title(setting)),
                    );
                }
                None if setting.holds_on() => {
                    changes.note(setting.directive, setting.title());
                }
                None => {}
            }
        }
        for setting in &new.settings {
            if setting.names_section() && self.find(setting.directive, setting.index).is_none() {
                changes.note(
                    setting.directive,
                    format!("{} added", new.section_title(setting)),
                );
            }
            if setting.holds_on() && self.find(setting.directive, setting.index).is_none() {
                changes.note(setting.directive, setting.title());
            }
        }
        changes
    }

    fn find(&self, directive: &Directive, index: usize) -> Option<&Setting> {
        self.settings
            .iter()
            .find(|s| std::ptr::eq(s.directive, directive) && s.index == index)
    }

    fn section_title(&self, setting: &Setting) -> String {
        let mut title = setting.directive.section.header().to_owned();
        if let Some(value) = &setting.value {
            let _ = write!(title, " {value}");
        }
        title
    }
}

impl Setting {
    /// Returns whether the setting takes effect only at a restart, although a reload can add or remove its section,
    /// such as `wildcard = true` of a namespace.
    fn holds_on(&self) -> bool {
        self.directive.section == Section::Namespace
            && self.directive.change == ReloadEffect::Restart
            && matches!(self.value, Some(DirectiveValue::Flag(true)))
    }

    /// Returns whether the setting's value identifies one of several sections.
    fn names_section(&self) -> bool {
        matches!(
            (self.directive.section, self.directive.name),
            (Section::Listen, "address")
                | (
                    Section::App | Section::Service | Section::Database | Section::Namespace,
                    "name",
                )
                | (Section::Route, "path")
        )
    }

    /// Returns a title such as `limits.ping_interval` or `route[2].origins` (counted from 1).
    fn title(&self) -> String {
        let Directive { section, name, .. } = self.directive;
        match section.repeats() {
            true => format!("{}[{}].{name}", section.name(), self.index + 1),
            false => format!("{}.{name}", section.name()),
        }
    }
}

impl ConfigChanges {
    fn note(&mut self, directive: &Directive, what: String) {
        match directive.change {
            ReloadEffect::Reload => self.reload.push(what),
            ReloadEffect::Restart => self.restart.push(what),
        }
    }
}
