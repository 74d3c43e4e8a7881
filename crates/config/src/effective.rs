//! Every directive's value as it counts, and where it came from: for `veche config`, and to tell what a
//! reload changes and what waits for a restart.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use veche_terminal::shown;

use super::directives::{Directive, ReloadEffect, Section};
use super::value::DirectiveValue;

/// All values, in the order of the table of directives.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveConfig {
    pub(super) file: PathBuf,
    pub(super) settings: Vec<Setting>,
}

/// One directive's value.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(super) directive: &'static Directive,
    /// Which one of a section that is written several times; 0 otherwise.
    pub(super) index: usize,
    /// `None`: not set, and without it nothing takes its place.
    pub(super) value: Option<DirectiveValue>,
    pub(super) origin: Origin,
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The file does not say it
    Default,
    /// The line of the file.
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
    /// TOML that says the same as the file, with each value's origin; secrets are masked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = shown(&self.file).to_string();
        writeln!(
            f,
            "# What {file} amounts to; behind each value stands where it came from."
        )?;
        let mut table = None;
        for setting in &self.settings {
            let here = (setting.directive.section, setting.index);
            if table != Some(here) {
                writeln!(f, "\n{}", setting.directive.section.header())?;
                table = Some(here);
            }
            let origin = match setting.origin {
                Origin::Default => "default".to_owned(),
                Origin::Line(line) => format!("{file}:{line}"),
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

/// What differs between two configurations, by directive, as a person would call it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigChanges {
    /// Takes effect with a reload.
    pub reload: Vec<String>,
    /// Takes effect with a restart only; until then the old value counts.
    pub restart: Vec<String>,
}

impl ConfigChanges {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.reload.is_empty() && self.restart.is_empty()
    }
}

impl EffectiveConfig {
    /// The same for the admin page: section by section, secrets masked, and of tables that are handed to scripts, which may
    /// hold some, the names alone.
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
                Origin::Default => None,
                Origin::Line(line) => Some(line),
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

    /// What changes when `new` takes the place of this.
    pub fn changes(&self, new: &Self) -> ConfigChanges {
        let mut changes = ConfigChanges::default();
        for setting in &self.settings {
            match new.find(setting.directive, setting.index) {
                Some(other) if other.value == setting.value => {}
                Some(_) => changes.note(setting.directive, setting.title()),
                // The section went: said once, by the directive that names it.
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
    /// Whether what it says of a section that comes or goes with a reload waits for a restart all the same.
    fn holds_on(&self) -> bool {
        self.directive.section == Section::Namespace
            && self.directive.change == ReloadEffect::Restart
            && matches!(self.value, Some(DirectiveValue::Flag(true)))
    }

    /// Whether its value is what people call a section of several by.
    fn names_section(&self) -> bool {
        matches!(
            (self.directive.section, self.directive.name),
            (Section::Listen, "address")
                | (Section::App | Section::Service | Section::Namespace, "name")
                | (Section::Route, "path")
        )
    }

    /// `limits.ping_interval`, `route[2].origins` (counted from 1).
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
