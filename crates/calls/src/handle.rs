//! What a reply leaves open on the other side of the seam.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Something that whoever made it knows how to use, and that ends when the last copy of this is gone: so nothing can be
/// left open by a reply that nobody takes.
#[derive(Clone)]
pub struct Handle(Arc<dyn Any + Send + Sync>);

impl Handle {
    /// Of that.
    pub fn new(what: impl Any + Send + Sync) -> Self {
        Self(Arc::new(what))
    }

    /// What it is of; `None` if that is something else.
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
