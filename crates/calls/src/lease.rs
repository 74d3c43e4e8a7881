//! Resources of the `outbound` crate that are held across several calls: a connection in a
//! transaction, or a subscription.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A resource that exists while a clone of the lease exists: dropping the last clone releases the
/// resource. Only the crate `outbound` uses its content.
#[derive(Clone)]
pub struct Lease(Arc<dyn Any + Send + Sync>);

impl Lease {
    /// Creates a lease of a resource.
    pub fn new(thing: impl Any + Send + Sync) -> Self {
        Self(Arc::new(thing))
    }

    /// Returns the resource if it is of type `T`.
    #[must_use]
    pub fn of<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}
