//! Colours of what a terminal shows.

use std::io::IsTerminal;

/// How a piece of text stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// In bold letters, in no colour of its own
    Bold,
    /// Fainter than the text around it
    Dim,
    /// Of errors, as a rule
    Red,
    /// Of what is right, as a rule
    Green,
    /// Of warnings, as a rule
    Yellow,
}

/// Whether there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Colours(bool);

impl Colours {
    /// Those of `stream`: a terminal has some, unless NO_COLOR is set (no-color.org).
    #[must_use]
    pub fn of(stream: &impl IsTerminal) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(stream.is_terminal() && !no_color)
    }

    /// `text` in that colour.
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
