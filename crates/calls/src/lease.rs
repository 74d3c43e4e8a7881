//! Something of the performer's that is held over several calls: a connection with a transaction, a subscription.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Held as long as a clone of it is; whoever made it knows what is in it, nobody else does. Letting go of the last one
/// ends what it stands for.
#[derive(Clone)]
pub struct Lease(Arc<dyn Any + Send + Sync>);

impl Lease {
    /// On that thing.
    pub fn new(thing: impl Any + Send + Sync) -> Self {
        Self(Arc::new(thing))
    }

    /// The thing, if it is of that type.
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
