//! Generated pages of docs/reference, compared by tests. The server's tests include this file too.

/// Asserts that docs/reference/`name` equals `page`. If the environment variable VECHE_BLESS is set, writes the file
/// instead.
pub(crate) fn assert_page_is_current(name: &str, page: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference")
        .join(name);
    if std::env::var_os("VECHE_BLESS").is_some() {
        std::fs::write(&file, page).expect("docs/reference must be writable");
        return;
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let line = found
        .lines()
        .zip(page.lines())
        .position(|(found, wanted)| found != wanted);
    let line = line.unwrap_or_else(|| found.lines().count().min(page.lines().count())) + 1;
    assert!(
        found == page,
        "docs/reference/{name} differs from the generated page from line {line} on; VECHE_BLESS=1 cargo test --workspace --lib reference rewrites it"
    );
}
