//! A code path whose instructions are counted: a closure that is set up before it is run.

use std::fmt;

/// A code path that was set up and not run yet.
pub struct Path(Box<dyn FnMut() -> Result<(), String>>);

impl Path {
    pub(crate) fn new(run: impl FnMut() -> Result<(), String> + 'static) -> Self {
        Self(Box::new(run))
    }

    /// Runs all operations of the code path.
    ///
    /// # Errors
    /// The run did not have the expected effect.
    pub fn run(&mut self) -> Result<(), String> {
        (self.0)()
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Path")
    }
}
