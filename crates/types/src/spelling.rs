//! Suggestions for misspelt names.

/// Returns the candidate nearest to `found`, if one is near enough to be the intended name.
pub fn nearest<'c>(found: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let found = found.to_ascii_lowercase();
    let is_near = |distance: usize, candidate: &str| {
        distance <= (candidate.len().max(found.len()) / 3).max(1)
    };
    candidates
        .into_iter()
        // Names of very different lengths are excluded first, since their distance is at least the difference in
        // length. Computing it takes time proportional to the product of the lengths, and a name may be a megabyte
        // long.
        .filter(|candidate| is_near(candidate.len().abs_diff(found.len()), candidate))
        .map(|candidate| (strsim::damerau_levenshtein(&found, candidate), candidate))
        .filter(|(distance, candidate)| is_near(*distance, candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
