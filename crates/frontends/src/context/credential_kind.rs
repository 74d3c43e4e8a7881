//! The kinds of keys for which wrong keys are counted.

/// What a key gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// A key of the back end's API.
    Api,
    /// A key of the admin page.
    Admin,
}

impl CredentialKind {
    /// Both kinds with their metric labels.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Api, "api"), (Self::Admin, "admin")];
}
