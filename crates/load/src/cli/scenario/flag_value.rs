//! One word of a phase, as the command line has it.

/// One word with its value as the command line has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlagValue {
    pub(super) key: String,
    /// The flags, or the values of what is given without a flag.
    pub(super) pieces: Vec<String>,
    pub(super) is_flag: bool,
    /// The plain texts, to find out what a later error is about.
    pub(super) texts: Vec<String>,
}

impl FlagValue {
    /// Puts other texts in the place of its own.
    pub(super) fn change(
        &mut self,
        other: impl Fn(&str) -> Result<String, String>,
    ) -> Result<(), String> {
        for (text, piece) in self.texts.iter_mut().zip(&mut self.pieces) {
            let changed = other(text)?;
            // The flag, if it is one, stays in front.
            piece.truncate(piece.len() - text.len());
            piece.push_str(&changed);
            *text = changed;
        }
        Ok(())
    }

    /// Returns the word as arguments of the command line.
    pub(super) fn argv(&self) -> Vec<String> {
        let mut argv = self.pieces.clone();
        if !self.is_flag {
            argv.insert(0, "--".to_owned());
        }
        argv
    }
}
