//! A value of a phase in command line form.

/// A flag of a phase with its values, in command line form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlagValue {
    pub(super) key: String,
    /// The arguments: flags with their values, or only the values of positional arguments.
    pub(super) pieces: Vec<String>,
    pub(super) is_flag: bool,
    /// The values without flags. They are used to find the value that a later error is about.
    pub(super) texts: Vec<String>,
}

impl FlagValue {
    pub(super) fn change(
        &mut self,
        other: impl Fn(&str) -> Result<String, String>,
    ) -> Result<(), String> {
        for (text, piece) in self.texts.iter_mut().zip(&mut self.pieces) {
            let changed = other(text)?;
            // Replaces the value and keeps the flag in front of it, if any.
            piece.truncate(piece.len() - text.len());
            piece.push_str(&changed);
            *text = changed;
        }
        Ok(())
    }

    /// Returns the value as command line arguments.
    pub(super) fn argv(&self) -> Vec<String> {
        let mut argv = self.pieces.clone();
        if !self.is_flag {
            argv.insert(0, "--".to_owned());
        }
        argv
    }
}
