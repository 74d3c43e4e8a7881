//! The files of the operator's page.

/// Where the page's files are.
pub(super) const ROOT: &str = "builtin:admin";

/// What browsers may do with them: load nothing from elsewhere, run nothing that is not a file of ours, and show them
/// in no other page.
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
