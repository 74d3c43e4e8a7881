//! Lines for a terminal: a column of labels, wrapped text beside it, optional colours.
//!
//! Colours are added after text has been measured and wrapped, so that escape sequences do not count
//! as width.

/// The style of a text for the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colours: the output is a terminal and `NO_COLOR` is not set.
    pub colour: bool,
    /// Number of columns, between 66 and 100.
    pub columns: usize,
}

impl Style {
    /// For files and pipes: 80 columns, no colours.
    pub const PLAIN: Self = Self {
        colour: false,
        columns: 80,
    };

    /// Returns the style for standard output: colours only on a terminal without `NO_COLOR` (`no_color` is the
    /// variable's value; an empty one counts as unset).
    #[must_use]
    pub fn new(
        is_terminal: bool,
        no_color: Option<&std::ffi::OsStr>,
        columns: Option<usize>,
    ) -> Self {
        let colour = is_terminal && no_color.is_none_or(std::ffi::OsStr::is_empty);
        Self {
            colour,
            columns: columns
                .filter(|_| is_terminal)
                .unwrap_or(Self::PLAIN.columns),
        }
    }
}

impl Default for Style {
    fn default() -> Self {
        Self::PLAIN
    }
}

/// The emphasis of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Faint,
    Bar,
    Good,
    Bad,
}

/// Width of the label column, after which the text begins.
const LABEL_COLUMNS: usize = 14;

pub(crate) struct TextPage {
    out: String,
    colour: bool,
    columns: usize,
}

impl TextPage {
    pub(crate) fn new(style: Style) -> Self {
        Self {
            out: String::new(),
            colour: style.colour,
            columns: style.columns.clamp(66, 100),
        }
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// Returns the width that is left for text beside the labels.
    pub(crate) fn room(&self) -> usize {
        self.columns - LABEL_COLUMNS
    }

    pub(crate) fn blank(&mut self) {
        self.out.push('\n');
    }

    /// Adds text over the whole width.
    pub(crate) fn text(&mut self, tone: Tone, text: &str) {
        for line in wrap(text, self.columns) {
            self.paint(tone, &line);
            self.blank();
        }
    }

    /// Adds a label and its text.
    pub(crate) fn field(&mut self, label: &str, tone: Tone, text: &str) {
        for (index, line) in wrap(text, self.room()).iter().enumerate() {
            if index == 0 {
                self.paint(Tone::Strong, label);
                let used = label.chars().count().min(LABEL_COLUMNS - 1);
                self.out
                    .extend(std::iter::repeat_n(' ', LABEL_COLUMNS - used));
            } else {
                self.out.extend(std::iter::repeat_n(' ', LABEL_COLUMNS));
            }
            self.paint(tone, line);
            self.blank();
        }
    }

    /// Adds text below a field, without a label.
    pub(crate) fn more(&mut self, tone: Tone, text: &str) {
        self.field("", tone, text);
    }

    /// Adds text whose lines after the first are indented by `hang` further columns.
    pub(crate) fn hanging(&mut self, tone: Tone, text: &str, hang: usize) {
        let mut lines = wrap(text, self.room() - hang);
        for line in lines.iter_mut().skip(1) {
            line.insert_str(0, &" ".repeat(hang));
        }
        for line in lines {
            self.row(&[(tone, &line)]);
        }
    }

    /// Adds an unwrapped line below a field. The caller must not exceed the width
    /// [`room`](Self::room).
    pub(crate) fn row(&mut self, pieces: &[(Tone, &str)]) {
        self.out.extend(std::iter::repeat_n(' ', LABEL_COLUMNS));
        self.pieces(pieces);
    }

    /// Adds a line that may take the whole width and is not wrapped.
    pub(crate) fn text_as_is(&mut self, tone: Tone, text: &str) {
        self.pieces(&[(tone, text)]);
    }

    /// Adds a line of texts, each with its tone. The line is not wrapped.
    pub(crate) fn pieces(&mut self, pieces: &[(Tone, &str)]) {
        let last = pieces
            .iter()
            .rposition(|(_, piece)| !piece.trim_end().is_empty());
        for (index, (tone, piece)) in pieces
            .iter()
            .enumerate()
            .take(last.map_or(0, |last| last + 1))
        {
            self.paint(
                *tone,
                if Some(index) == last {
                    piece.trim_end()
                } else {
                    piece
                },
            );
        }
        self.blank();
    }

    /// Adds a prominent frame: a headline between rules, then a line for each item.
    pub(crate) fn alarm(&mut self, headline: &str, items: &[String]) {
        let rule = "━".repeat(self.columns);
        self.paint(Tone::Bad, &rule);
        self.blank();
        self.text(Tone::Bad, headline);
        for item in items {
            for (index, line) in wrap(item, self.columns - 4).iter().enumerate() {
                self.paint(
                    Tone::Bad,
                    &format!("{}{line}", if index == 0 { "  - " } else { "    " }),
                );
                self.blank();
            }
        }
        self.paint(Tone::Bad, &rule);
        self.blank();
    }

    fn paint(&mut self, tone: Tone, text: &str) {
        let code = match tone {
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Bar => "36",
            Tone::Good => "32",
            Tone::Bad => "1;31",
            Tone::Plain => "",
        };
        if self.colour && !code.is_empty() && !text.is_empty() {
            self.out.push_str("\x1b[");
            self.out.push_str(code);
            self.out.push('m');
            self.out.push_str(text);
            self.out.push_str("\x1b[0m");
        } else {
            self.out.push_str(text);
        }
    }
}

/// Wraps text to lines of at most `columns`, between words; overlong words are broken. A no-break space keeps a figure
/// and its unit together and is written as a space.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > columns {
            lines.push(String::new());
            used = 0;
        } else if used > 0 {
            lines.last_mut().expect("never empty").push(' ');
            used += 1;
        }
        for c in word.chars() {
            if used == columns {
                lines.push(String::new());
                used = 0;
            }
            lines
                .last_mut()
                .expect("never empty")
                .push(if c == '\u{a0}' { ' ' } else { c });
            used += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn breaks_between_words_and_inside_only_if_it_must() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("x abcdefghij", 4), ["x", "abcd", "efgh", "ij"]);
        assert_eq!(wrap("takes 12\u{a0}ms", 8), ["takes", "12 ms"]);
        assert_eq!(wrap("", 8), [""]);
    }

    #[test]
    fn colours_only_on_a_terminal_that_wants_them() {
        assert!(Style::new(true, None, Some(120)).colour);
        assert!(Style::new(true, Some(OsStr::new("")), None).colour);
        assert!(!Style::new(true, Some(OsStr::new("1")), None).colour);
        assert_eq!(Style::new(false, None, Some(33)), Style::PLAIN);
    }
}
