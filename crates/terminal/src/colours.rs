//! Colours of terminal output.

use std::io::IsTerminal;

/// A style of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Bold, in the default colour.
    Bold,
    /// Dimmed, for secondary text.
    Dim,
    /// Red, usually for errors.
    Red,
    /// Green, usually for success.
    Green,
    /// Yellow, usually for warnings.
    Yellow,
}

/// Whether output is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Colours(bool);

impl Colours {
    /// Enables colours if the stream is a terminal and `NO_COLOR` is empty or not set (no-color.org).
    #[must_use]
    pub fn of(stream: &impl IsTerminal) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(stream.is_terminal() && !no_color)
    }

    /// Returns `text` in a style.
    #[must_use]
    pub fn paint(self, colour: Colour, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Bold => 1,
            Colour::Dim => 2,
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
