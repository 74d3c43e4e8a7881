//! What a key opens, as the count of wrong keys has it.

/// What a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The back end's API.
    Api,
    /// The operator's page.
    Admin,
}

impl Lock {
    /// Both, with their labels in the metrics.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Api, "api"), (Self::Admin, "admin")];
}
