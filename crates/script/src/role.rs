//! What applications are there for.

/// What an application is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppRole {
    /// Connections and requests: its handlers are called.
    #[default]
    Clients,
    /// Work of its own: `run` is called, in one of several VMs.
    Service {
        /// Which of them, from 1.
        instance: u32,
        /// How many there are.
        instances: u32,
    },
}
