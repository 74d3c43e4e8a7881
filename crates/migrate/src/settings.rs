//! The settings of a parsed configuration. A setting is removed when it is read, so the settings
//! that remain have no counterpart in Veche.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// A tree of settings. Empty values (`false`, `0`, `""`) count as absent.
pub(super) struct SettingsTree {
    root: Value,
    /// The names of renamed settings in the file, by their new paths.
    names: HashMap<String, String>,
}

impl SettingsTree {
    pub(super) fn new(root: Value) -> Self {
        Self {
            root,
            names: HashMap::new(),
        }
    }

    /// Returns whether the root has one of these objects.
    pub(super) fn has_objects(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.root[*name].is_object())
    }

    /// Moves a setting of the root to another path.
    pub(super) fn rename(&mut self, old: &str, path: &str) {
        let Some(value) = self.root.as_object_mut().and_then(|root| root.remove(old)) else {
            return;
        };
        self.names.insert(path.to_owned(), old.to_owned());
        let mut place = &mut self.root;
        for name in path.split('.') {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[name];
        }
        *place = value;
    }

    /// Returns the name of a setting in the file: its old name if it was moved to this path, else the path.
    pub(super) fn name<'p>(&'p self, path: &'p str) -> &'p str {
        self.names.get(path).map_or(path, String::as_str)
    }

    /// Removes and returns the value at a path.
    pub(super) fn take(&mut self, path: &str) -> Option<Value> {
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let mut place = &mut self.root;
        for name in parent.split('.').filter(|name| !name.is_empty()) {
            place = place.get_mut(name)?;
        }
        let value = place.as_object_mut()?.remove(name)?;
        (!is_nothing(&value)).then_some(value)
    }

    /// Removes and returns a text; a number is converted to text.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        match self.take(path)? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// Removes and returns a flag; `false` if it is not set.
    pub(super) fn flag(&mut self, path: &str) -> bool {
        self.take(path) == Some(Value::Bool(true))
    }

    /// Removes and returns a number, which may be written as a text.
    pub(super) fn number(&mut self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Removes a duration such as "1m30s" (plain numbers are seconds), and returns it in Veche's notation. `None` if it is
    /// zero, invalid or not set.
    pub(super) fn duration(&mut self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        milliseconds(&text).filter(|ms| *ms > 0).map(written)
    }

    /// Removes and returns a list of texts; a single text is split at blanks and commas.
    pub(super) fn list(&mut self, path: &str) -> Vec<String> {
        let text = |value: Value| match value {
            Value::String(text) => Some(text),
            _ => None,
        };
        match self.take(path) {
            Some(Value::Array(values)) => values.into_iter().filter_map(text).collect(),
            Some(Value::String(values)) => {
                let values = values.split([' ', ',']);
                let values = values.filter(|value| !value.is_empty());
                values.map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Removes and returns a list of objects.
    pub(super) fn objects(&mut self, path: &str) -> Vec<Self> {
        match self.take(path) {
            Some(Value::Array(values)) => values.into_iter().map(Self::new).collect(),
            _ => Vec::new(),
        }
    }

    /// Removes settings that need no counterpart in Veche.
    pub(super) fn skip(&mut self, paths: &[&str]) {
        for path in paths {
            self.take(path);
        }
    }

    /// Returns the names of the remaining settings.
    pub(super) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        self.collect("", &self.root, &mut left);
        left
    }

    fn collect(&self, path: &str, value: &Value, left: &mut Vec<String>) {
        match value {
            Value::Object(members) if members.get("enabled") == Some(&Value::Bool(false)) => {}
            Value::Object(members) => {
                for (name, member) in members {
                    let path = match path {
                        "" => name.clone(),
                        path => format!("{path}.{name}"),
                    };
                    self.collect(&path, member, left);
                }
            }
            value if is_nothing(value) => {}
            _ => left.push(self.name(path).to_owned()),
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// Parses a duration in Go's format and returns milliseconds. A plain number is a number of
/// seconds.
fn milliseconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1_000);
    }
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|sign: char| !sign.is_ascii_digit() && sign != '.')?;
        let (count, behind) = rest.split_at(number);
        let unit = behind
            .find(|sign: char| sign.is_ascii_digit())
            .unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        let unit_ms = match unit {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            _ => return None,
        };
        sum += count.parse::<f64>().ok()? * unit_ms;
        rest = behind;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "negative numbers aren't parsed, and the cast saturates"
    )]
    Some(sum as u64)
}

/// Formats a duration in the largest unit that divides it evenly.
fn written(ms: u64) -> String {
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let unit = units
        .into_iter()
        .find(|(unit_ms, _)| ms.is_multiple_of(*unit_ms));
    let (unit_ms, unit) = unit.unwrap_or((1, "ms"));
    format!("{}{unit}", ms / unit_ms)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_taken_once_and_the_rest_is_left_by_name() {
        let mut settings = SettingsTree::new(json!({
            "a": { "b": "x", "off": false }, "port": "80", "list": "a, b", "old": 7, "times": ["1m30s", "90", "0s"],
        }));
        settings.rename("old", "new.place");
        settings.rename("absent", "new.other");
        assert_eq!(settings.text("a.b").as_deref(), Some("x"));
        assert_eq!(settings.text("a.b"), None);
        assert!(!settings.flag("a.off") && !settings.flag("a.none"));
        assert_eq!(settings.number("port"), Some(80));
        assert_eq!(settings.list("list"), ["a", "b"]);
        assert_eq!(settings.left(), ["old", "times"]);
        assert_eq!(settings.number("new.place"), Some(7));
        assert_eq!(settings.left(), ["times"]);
    }

    #[test]
    fn durations_are_those_of_go() {
        for (text, expected) in [
            ("300s", "5m"),
            ("1m30s", "90s"),
            ("1.5s", "1500ms"),
            ("90", "90s"),
            ("720h0m0s", "720h"),
        ] {
            let mut settings = SettingsTree::new(json!({ "t": text }));
            assert_eq!(settings.duration("t").as_deref(), Some(expected), "{text}");
        }
        for text in ["0s", "soon", "1x", "s"] {
            let mut settings = SettingsTree::new(json!({ "t": text }));
            assert_eq!(settings.duration("t"), None, "{text}");
        }
    }
}
