//! Suggestions for misspelt names.

/// The candidate nearest to `found`, if one is near enough to be meant.
pub fn nearest<'c>(found: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let found = found.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&found, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(found.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
