//! A line of the page of codes.

/// One way to be sent away.
pub(super) struct CodeEntry {
    pub(super) code: u16,
    /// As a source has them; where they differ from time to time, their beginning.
    pub(super) words: &'static str,
    pub(super) when: &'static str,
    /// Names of directives, with their sections; empty: nothing changes it.
    pub(super) settings: &'static [&'static str],
    /// On `/metrics`, without labels.
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
