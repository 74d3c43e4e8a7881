//! What responses of applications may hold.

/// The longest path of a file in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// Returns whether an application may answer with a file of that path: one below its folder, whatever is there. Hidden
/// files are not for strangers.
#[must_use]
pub fn is_file_path(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX
        && path.split('/').all(|name| {
            !name.is_empty()
                && !name.starts_with('.')
                && !name.contains('\\')
                && !name.chars().any(char::is_control)
        })
}
