//! Handles of resources that stay open after the reply to a call. The `outbound` crate performs the
//! calls and creates the resources.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// An opaque resource. It is closed when the last clone is dropped, so a reply that is never taken
/// leaves nothing open.
#[derive(Clone)]
pub struct Handle(Arc<dyn Any + Send + Sync>);

impl Handle {
    /// Wraps a resource of any type.
    pub fn new(what: impl Any + Send + Sync) -> Self {
        Self(Arc::new(what))
    }

    /// Returns the resource; `None` if it has another type.
    #[must_use]
    pub fn of<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.0).downcast().ok()
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}
