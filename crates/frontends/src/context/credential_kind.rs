//! What a key opens, as the count of wrong keys has it.

/// What a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// The back end's API.
    Api,
    /// The operator's page.
    Admin,
}

impl CredentialKind {
    /// Both, with their labels in the metrics.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Api, "api"), (Self::Admin, "admin")];
}
