//! Work on threads of the addon, answered by a promise. libuv's pool, which file system calls of the host program need, is never used.

use mx_core::error::{Error, Result};
use mx_core::pool::Pool;
use napi::Env;
use napi::bindgen_prelude::{Object, ToNapiValue};

use crate::failure::thrown;

/// Work that opens or reads files, or loads libraries: a file system that hangs holds these threads, and none of the others.
pub static FILES: Pool = Pool::new("mx-files", 64);
/// Work on memory and devices.
pub static MEMORY: Pool = Pool::new("mx-memory", 32);

/// Runs `work` on a thread of the pool; the promise has its result. A worker that ends meanwhile drops the answer.
pub fn in_background<'env, T, Work>(env: &'env Env, pool: &'static Pool, work: Work) -> napi::Result<Object<'env>>
where
    T: ToNapiValue + Send + 'static,
    Work: FnOnce() -> Result<T> + Send + 'static,
{
    let (deferred, promise) = env.create_deferred::<T, Box<dyn FnOnce(Env) -> napi::Result<T>>>()?;
    let unstarted = deferred.clone();
    let started = pool.run(move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(Error::new("ERR_INTERNAL", "a background thread panicked")));
        match outcome {
            Ok(value) => deferred.resolve(Box::new(move |_| Ok(value))),
            Err(error) => deferred.reject(thrown(error)),
        }
    });
    if let Err(error) = started {
        // The promise must be settled: an open one keeps the event loop alive.
        let message = "no native thread could be started: raise the limit on processes (ulimit -u, the cgroup's pids.max)";
        unstarted.reject(thrown(Error::new("ERR_TRANSFER_NO_THREAD", message).caused_by("pthread_create", &error)));
    }
    Ok(promise)
}
