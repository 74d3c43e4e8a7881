//! The roles of applications.

/// The role of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppRole {
    /// Serves connections and requests through its handlers.
    #[default]
    Clients,
    /// Runs in the background: the VM calls the script's `run` function. A service may have several instances, each with a VM.
    Service {
        /// The number of the instance, from 1.
        instance: u32,
        /// The number of instances of the service.
        instances: u32,
    },
}
