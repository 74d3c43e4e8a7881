//! A row of the reference page of close codes and error statuses.

/// A code, with one of the texts that occur with it.
pub(super) struct CodeEntry {
    pub(super) code: u16,
    /// The text as it occurs in a source file, or only its beginning if the rest varies.
    pub(super) words: &'static str,
    pub(super) when: &'static str,
    /// Names of the directives that affect the code, each with its section.
    pub(super) settings: &'static [&'static str],
    /// The metric that counts the code, without labels; may be empty.
    pub(super) metric: &'static str,
}

pub(super) const fn row(
    code: u16,
    words: &'static str,
    when: &'static str,
    settings: &'static [&'static str],
    metric: &'static str,
) -> CodeEntry {
    CodeEntry {
        code,
        words,
        when,
        settings,
        metric,
    }
}
