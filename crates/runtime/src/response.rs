//! Validation of application responses.

/// The longest path of a file in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// Returns whether an application may respond with the file at a path. The path must be relative, stay below the application's
/// folder and contain no hidden file; whether the file exists is not checked.
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
