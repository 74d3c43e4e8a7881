//! The kinds of keys whose wrong uses are counted.

/// The use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// The back end's API.
    Api,
    /// Keys of the admin page.
    Admin,
}

impl CredentialKind {
    /// Both kinds with their metric labels.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Api, "api"), (Self::Admin, "admin")];
}
