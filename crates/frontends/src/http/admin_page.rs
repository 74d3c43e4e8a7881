//! The files of the admin page.

/// The root of the page's files, which are embedded in the program.
pub(super) const ROOT: &str = "builtin:admin";

/// Headers that make browsers restrict the page: no resources of other sites, only scripts from the page's own files,
/// and no embedding in other pages.
pub(super) const HEADERS: &[(&str, &str)] = &[
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
];
