//! One generation of an application, which ends when the application is replaced, and the pool that
//! runs it.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use veche_spawner::Spawner;

use crate::figures::PoolFigures;
use crate::manager;
use crate::options::Options;
use crate::shared::Shared;

/// One generation of an application: from its start or a reload until it is replaced. Shared by all
/// server threads.
#[derive(Clone, Debug)]
pub struct Program(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    /// The spawner, which is moved to the pool when the pool starts. The spawner therefore ends with the pool, although
    /// the server keeps the applications of its first configuration until the server itself ends.
    spawner: Mutex<Option<Arc<Spawner>>>,
    figures: Arc<PoolFigures>,
    pool: OnceLock<Result<Arc<Shared>, String>>,
}

impl Program {
    /// Returns an application of which no process has started. Its processes are counted in
    /// `figures`.
    #[must_use]
    pub fn new(options: Options, spawner: Arc<Spawner>, figures: Arc<PoolFigures>) -> Self {
        let pool = OnceLock::new();
        Self(Arc::new(Inner {
            options,
            spawner: Mutex::new(Some(spawner)),
            figures,
            pool,
        }))
    }

    /// Returns the configured options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Returns whether `other` is the same generation of the same application.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the pool, whose processes start with the first call.
    pub(crate) fn pool(&self) -> Result<&Arc<Shared>, String> {
        let inner = &self.0;
        let start = || {
            let spawner = inner.spawner.lock().take();
            match spawner {
                Some(spawner) => {
                    manager::start(&inner.options, spawner, Arc::clone(&inner.figures))
                }
                None => Err("the process pool was already started".to_owned()),
            }
        };
        let pool = inner.pool.get_or_init(start);
        pool.as_ref().map_err(Clone::clone)
    }
}
