//! Descriptions of the current uses of a pool's connections, for the error text when all are in use.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum length of a description in characters.
const TEXT_MAX: usize = 60;

/// Maximum number of descriptions in an error.
const NAMED_MAX: usize = 5;

/// Descriptions of the current uses of a pool, for error texts.
#[derive(Debug, Default)]
pub(crate) struct ActiveUses(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    uses: HashMap<u64, Use>,
}

#[derive(Debug)]
struct Use {
    text: String,
    since: Instant,
}

/// One use of a connection; it ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct ActiveUse {
    number: u64,
    held: Arc<ActiveUses>,
}

impl ActiveUses {
    pub(crate) fn begin(self: &Arc<Self>, text: String) -> ActiveUse {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        let since = Instant::now();
        state.uses.insert(number, Use { text, since });
        ActiveUse {
            number,
            held: Arc::clone(self),
        }
    }

    /// Describes all uses, the longest first.
    pub(crate) fn describe(&self) -> String {
        let state = self.0.lock();
        let mut uses: Vec<&Use> = state.uses.values().collect();
        uses.sort_by_key(|one| one.since);
        // Groups equal descriptions and counts them. The groups are ordered by their longest use.
        let mut groups: Vec<(&Use, usize)> = Vec::new();
        for one in uses {
            match groups.iter_mut().find(|(known, _)| known.text == one.text) {
                Some((_, count)) => *count += 1,
                None => groups.push((one, 1)),
            }
        }
        let mut words = String::new();
        for (index, (one, count)) in groups.iter().take(NAMED_MAX).enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let seconds = one.since.elapsed().as_secs_f64();
            let _ = write!(words, "{comma}{} for {seconds:.1} s", one.text);
            if *count > 1 {
                let _ = write!(words, " and {} more like it", count - 1);
            }
        }
        let unnamed: usize = groups.iter().skip(NAMED_MAX).map(|(_, count)| count).sum();
        if unnamed > 0 {
            let _ = write!(words, ", {unnamed} others");
        }
        words
    }
}

impl ActiveUse {
    /// Changes the description; the start time of the use stays.
    pub(crate) fn set(&self, text: String) {
        if let Some(one) = self.held.0.lock().uses.get_mut(&self.number) {
            one.text = text;
        }
    }
}

impl Drop for ActiveUse {
    fn drop(&mut self) {
        self.held.0.lock().uses.remove(&self.number);
    }
}

/// Formats a statement for errors: on one line, in quotes, with `?` in place of its strings, and cut at [`TEXT_MAX`].
pub(crate) fn shortened(statement: &str) -> String {
    let mut text = String::from("\"");
    let mut chars = statement.trim_start().chars();
    let (mut count, mut is_behind_space) = (0, false);
    while let Some(one) = chars.next() {
        if one.is_whitespace() || one.is_control() {
            is_behind_space = true;
            continue;
        }
        if count + usize::from(is_behind_space) >= TEXT_MAX {
            text.push('…');
            break;
        }
        if std::mem::take(&mut is_behind_space) {
            text.push(' ');
            count += 1;
        }
        count += 1;
        match one {
            '\'' | '"' => {
                text.push('?');
                skip_string(&mut chars, one);
            }
            one => text.push(one),
        }
    }
    text.push('"');
    text
}

/// Skips past the end of a string.
fn skip_string(chars: &mut std::str::Chars<'_>, quote: char) {
    while let Some(one) = chars.next() {
        if one == '\\' {
            chars.next();
        } else if one == quote {
            let mut behind = chars.clone();
            if behind.next() != Some(quote) {
                return;
            }
            *chars = behind;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_statement_in_short_has_one_line_and_no_string_of_it() {
        for (statement, short) in [
            ("select 1", "\"select 1\""),
            (" select\n\t a  from t ", "\"select a from t\""),
            (
                "update t set a = 'it''s \\' secret' where b = \"x\"",
                "\"update t set a = ? where b = ?\"",
            ),
            ("select 'never ends", "\"select ?\""),
            (
                &"вече ".repeat(100),
                &format!("\"{}…\"", ["вече"; 12].join(" ")),
            ),
        ] {
            assert_eq!(shortened(statement), short);
        }
        let exact = "x".repeat(TEXT_MAX);
        assert_eq!(shortened(&exact), format!("\"{exact}\""));
    }

    #[tokio::test(start_paused = true)]
    async fn uses_are_listed_by_age_and_grouped() {
        let held = Arc::new(ActiveUses::default());
        assert_eq!(held.describe(), "");
        let old = held.begin("a".to_owned());
        tokio::time::advance(Duration::from_millis(1_500)).await;
        let others: Vec<ActiveUse> = ["b", "b", "c", "d", "e", "f", "f"]
            .map(|text| held.begin(text.to_owned()))
            .into();
        let description = held.describe();
        assert!(description.starts_with("a for 1.5 s, "), "{description}");
        assert_eq!(
            description.matches(" for 0.0 s").count(),
            4,
            "{description}"
        );
        drop(others);
        let _two = [held.begin("b".to_owned()), held.begin("b".to_owned())];
        old.set("later".to_owned());
        assert_eq!(
            held.describe(),
            "later for 1.5 s, b for 0.0 s and 1 more like it"
        );
        drop(old);
        assert_eq!(held.describe(), "b for 0.0 s and 1 more like it");
    }
}
