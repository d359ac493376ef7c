//! Work on threads of the addon, answered by a promise. libuv's pool, which file system calls of
//! the host program need, is never used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mx_core::error::{Error, Result};
use mx_core::pool::Pool;
use napi::bindgen_prelude::{PromiseRaw, ToNapiValue};
use napi::{Env, JsDeferred, JsValue};
use napi_derive::napi;

use crate::failure::thrown;

/// Work that opens or reads files, or loads libraries: a file system that hangs holds these
/// threads, and none of the others.
pub static FILES: Pool = Pool::new("mx-files", 64);
/// Work on memory and devices.
pub static MEMORY: Pool = Pool::new("mx-memory", 32);

type Deferred<T> = JsDeferred<T, Box<dyn FnOnce(Env) -> napi::Result<T>>>;
/// The promise of a call until somebody settles it. An open one keeps the event loop alive.
type Open<T> = Arc<Mutex<Option<Deferred<T>>>>;

/// Runs `work` on a thread of the pool; the promise has its result. A worker that ends meanwhile
/// drops the answer.
pub fn in_background<'env, T, Work>(env: &'env Env, pool: &'static Pool, work: Work) -> napi::Result<PromiseRaw<'env, T>>
where
    T: ToNapiValue + Send + 'static,
    Work: FnOnce() -> Result<T> + Send + 'static,
{
    start(env, pool, work).map(|(promise, _)| promise)
}

/// As [`in_background`]; `stop` rejects the promise at once, wherever the work is: what it answers
/// then is dropped.
pub fn in_background_until<'env, T, Work>(
    env: &'env Env,
    pool: &'static Pool,
    stop: Option<&NativeStop>,
    work: Work,
) -> napi::Result<PromiseRaw<'env, T>>
where
    T: ToNapiValue + Send + 'static,
    Work: FnOnce() -> Result<T> + Send + 'static,
{
    let Some(stop) = stop else { return in_background(env, pool, work) };
    let stopped = stop.stopped.clone();
    let (promise, open) = start(env, pool, move || if stopped.load(Ordering::Acquire) { Err(aborted()) } else { work() })?;
    stop.when_stopped(move || settle(&open, Err(aborted())));
    Ok(promise)
}

fn aborted() -> Error {
    Error::new("ERR_ABORTED", "the call was stopped")
}

fn start<'env, T, Work>(env: &'env Env, pool: &'static Pool, work: Work) -> napi::Result<(PromiseRaw<'env, T>, Open<T>)>
where
    T: ToNapiValue + Send + 'static,
    Work: FnOnce() -> Result<T> + Send + 'static,
{
    let (deferred, promise) = env.create_deferred()?;
    let open: Open<T> = Arc::new(Mutex::new(Some(deferred)));
    let answered = open.clone();
    let started = pool.run(move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(Error::new("ERR_INTERNAL", "a background thread panicked")));
        settle(&answered, outcome);
    });
    if let Err(error) = started {
        let message = "no native thread could be started: raise the limit on processes (ulimit -u, the cgroup's pids.max)";
        settle(&open, Err(Error::new("ERR_TRANSFER_NO_THREAD", message).caused_by("pthread_create", &error)));
    }
    Ok((PromiseRaw::new(env.raw(), promise.raw()), open))
}

fn settle<T: ToNapiValue + Send + 'static>(open: &Open<T>, outcome: Result<T>) {
    let Some(deferred) = open.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    match outcome {
        Ok(value) => deferred.resolve(Box::new(move |_| Ok(value))),
        Err(error) => deferred.reject(thrown(error)),
    }
}

/// Rejects the calls that were given it, with ERR_ABORTED. Work that cannot be interrupted, as in a
/// read of a file system that hangs, runs on, and keeps no process alive.
#[napi]
pub struct NativeStop {
    stopped: Arc<AtomicBool>,
    waiting: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

#[napi]
impl NativeStop {
    #[napi(constructor)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        NativeStop { stopped: Arc::new(AtomicBool::new(false)), waiting: Mutex::new(Vec::new()) }
    }

    #[napi]
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(|settle| settle());
    }

    fn when_stopped(&self, settle: impl FnOnce() + Send + 'static) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(settle));
    }
}
