//! Binding of `mx_core::nixl`.

use std::cell::RefCell;
use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use mx_core::error::{Error, Result as CoreResult};
use mx_core::io::identity::{IDENTITY_WORDS, Identity};
use mx_core::nixl::ucx_settings::{self, UcxSetting};
use mx_core::nixl::{
    AgentSpec, AgentThread, Answer, Descriptor, HeldFile, Keep, Kind, NixlApi, PluginSpec, RegistrationSpec, Side, TransferSpec,
    why_not_loadable,
};
use napi::bindgen_prelude::{BigUint64Array, Float64Array, FnArgs, Function, PromiseRaw, ToNapiValue, Uint8Array};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Env, JsValue, Result};
use napi_derive::napi;

use crate::arena::NativeArena;
use crate::background::{FILES, in_background};
use crate::failure::{failure_json, thrown};
use crate::transfer::unkept_bits;

/// NIXL's library, loaded for good.
#[napi]
pub struct NativeNixl {
    api: Arc<NixlApi>,
    ucx_settings: Vec<ucx_settings::UcxSettingState>,
}

/// Puts the settings into the environment that C sees, then loads the library. `path` may be a bare
/// name for the loader's search. ERR_NIXL_LOAD, ERR_NIXL_SYMBOLS, ERR_NIXL_STUB
#[napi]
pub fn load_nixl<'env>(env: &'env Env, path: String, settings: Vec<NativeUcxSetting>) -> Result<PromiseRaw<'env, NativeNixl>> {
    let settings = settings.into_iter().map(NativeUcxSetting::into_core).collect::<Result<Vec<_>>>()?;
    let ucx_settings = ucx_settings::apply(&settings);
    in_background(env, &FILES, move || Ok(NativeNixl { api: Arc::new(NixlApi::load(&path)?), ucx_settings }))
}

/// What became of a setting.
#[napi(string_enum = "kebab-case")]
pub enum UcxSettingState {
    /// Here, for this process, its children and every UCX loaded later.
    Set,
    /// By the user, and left as it is.
    UserSet,
    /// UCX was in the process already, with its default.
    LoadedBefore,
    /// By the C library, for lack of memory.
    Refused,
}

/// A variable to set where neither it nor one of `others` is set and UCX is not loaded yet.
#[napi(object, object_to_js = false)]
pub struct NativeUcxSetting {
    pub variable: String,
    pub value: String,
    pub others: Vec<String>,
}

impl NativeUcxSetting {
    fn into_core(self) -> Result<UcxSetting> {
        let others = self.others.into_iter().map(CString::new).collect::<std::result::Result<_, _>>()?;
        Ok(UcxSetting { variable: CString::new(self.variable)?, value: CString::new(self.value)?, others })
    }
}

/// Why a shared library cannot be loaded; null when it can, and then it is.
#[napi]
pub fn why_library_not_loadable(name: String) -> Option<String> {
    why_not_loadable(&name)
}

#[napi(object, object_to_js = false)]
pub struct NixlPluginSpec {
    pub name: String,
    /// `[key, value, key, value, ...]`
    pub parameters: Vec<String>,
    /// After a failure other pieces may still be moving, until the agent ends.
    pub strands: bool,
}

#[napi(object, object_to_js = false, use_nullable = true)]
pub struct NixlAgentSpec {
    pub name: String,
    pub progress_thread: bool,
    pub listen_port: Option<u16>,
    pub plugins: Vec<NixlPluginSpec>,
}

/// What descriptors stand for.
#[napi(string_enum = "UPPERCASE")]
pub enum SegmentKind {
    Dram,
    Vram,
    File,
}

/// Pieces of memory, `device` its number; or of a file: `address` is the offset, `device` the
/// descriptor.
#[napi(object, object_to_js = false)]
pub struct NixlDescriptors {
    pub kind: SegmentKind,
    pub address: BigUint64Array,
    pub length: Float64Array,
    pub device: f64,
}

#[napi(object, object_to_js = false)]
pub struct NixlTransferSpec {
    /// Row of the plugin in the agent's specification.
    pub plugin: u32,
    pub write: bool,
    pub local: NixlDescriptors,
    pub remote: NixlDescriptors,
    /// Agent of the remote side; undefined for this one.
    #[napi(ts_type = "string | undefined")]
    pub agent: Option<String>,
    /// Registrations in use: none is undone before the transfer is released.
    pub registrations: Vec<f64>,
    /// File of the remote side, for errors.
    #[napi(ts_type = "string | undefined")]
    pub file: Option<String>,
}

type FailureArgs = FnArgs<(Option<String>,)>;
type AgentArgs = FnArgs<(Option<String>, Option<Vec<String>>)>;

#[napi]
impl NativeNixl {
    /// File it was loaded from, as the loader says.
    #[napi(getter)]
    pub fn path(&self) -> &str {
        &self.api.path
    }

    /// What became of each setting, in their order; the first load of the process settles it.
    #[napi(getter)]
    pub fn ucx_settings(&self) -> Vec<UcxSettingState> {
        let told = |state: &ucx_settings::UcxSettingState| match state {
            ucx_settings::UcxSettingState::Set => UcxSettingState::Set,
            ucx_settings::UcxSettingState::UserSet => UcxSettingState::UserSet,
            ucx_settings::UcxSettingState::LoadedBefore => UcxSettingState::LoadedBefore,
            ucx_settings::UcxSettingState::Refused => UcxSettingState::Refused,
        };
        self.ucx_settings.iter().map(told).collect()
    }

    /// Makes an agent on a thread of its own; `answer` comes once, with the names of all plugins.
    #[napi]
    pub fn create_agent(
        &self,
        spec: NixlAgentSpec,
        #[napi(ts_arg_type = "(failureJson: string | null, plugins: string[] | null) => void")] answer: Function<'_, AgentArgs, ()>,
    ) -> Result<NativeNixlAgent> {
        let answer = answer.build_threadsafe_function::<AgentArgs>().callee_handled::<false>().build()?;
        let spec = AgentSpec {
            name: spec.name,
            progress_thread: spec.progress_thread,
            listen_port: spec.listen_port,
            plugins: spec
                .plugins
                .into_iter()
                .map(|plugin| PluginSpec { name: plugin.name, parameters: pairs(plugin.parameters), strands: plugin.strands })
                .collect(),
        };
        let told: Answer<Vec<String>> = Box::new(move |outcome| {
            let arguments = match outcome {
                Ok(plugins) => (None, Some(plugins)),
                Err(error) => (Some(failure_json(&error)), None),
            };
            answer.call(arguments.into(), ThreadsafeFunctionCallMode::NonBlocking);
        });
        let thread = AgentThread::start(Arc::clone(&self.api), spec, told).map_err(thrown)?;
        Ok(NativeNixlAgent { thread })
    }
}

/// All calls run in order on the agent's thread; none blocks JavaScript. Dropped unclosed it closes
/// itself.
#[napi]
pub struct NativeNixlAgent {
    thread: AgentThread,
}

#[napi]
impl NativeNixlAgent {
    /// `pins`: `[address, length, ...]` within allocations of `arena`, held like `file` until the
    /// registration is undone. Its number.
    #[napi]
    pub fn register<'env>(
        &self,
        env: &'env Env,
        plugin: u32,
        pieces: NixlDescriptors,
        arena: Option<&NativeArena>,
        pins: Option<BigUint64Array>,
        file: Option<&NativeFile>,
    ) -> Result<PromiseRaw<'env, f64>> {
        let (kind, descriptors) = descriptors(&pieces).map_err(thrown)?;
        let mut keep: Vec<Keep> = Vec::new();
        if let Some(arena) = arena {
            let arena = arena.arena();
            for range in pins.iter().flat_map(|pins| pins.chunks_exact(2)) {
                keep.push(Arc::new(arena.pin(range[0] as usize, range[1] as usize).map_err(thrown)?));
            }
        }
        if let Some(file) = file {
            keep.push(file.held()? as Keep);
        }
        let spec = RegistrationSpec { plugin: plugin as usize, kind, descriptors, keep };
        answered(env, |answer| self.thread.register(spec, answer), |number| number as f64)
    }

    /// ERR_NIXL_BUSY while a transfer that uses it is not released.
    #[napi]
    pub fn deregister<'env>(&self, env: &'env Env, registration: f64) -> Result<PromiseRaw<'env, ()>> {
        answered(env, |answer| self.thread.deregister(registration as u64, answer), |()| ())
    }

    #[napi]
    pub fn create_transfer<'env>(&self, env: &'env Env, spec: NixlTransferSpec) -> Result<PromiseRaw<'env, f64>> {
        let side = |pieces: &NixlDescriptors| descriptors(pieces).map(|(kind, descriptors)| Side { kind, descriptors });
        let spec = TransferSpec {
            plugin: spec.plugin as usize,
            write: spec.write,
            local: side(&spec.local).map_err(thrown)?,
            remote: side(&spec.remote).map_err(thrown)?,
            agent: spec.agent,
            registrations: spec.registrations.iter().map(|number| *number as u64).collect(),
            file: spec.file,
        };
        answered(env, |answer| self.thread.create_transfer(spec, answer), |number| number as f64)
    }

    /// `done` comes once, at the end, a failure or an abort; `settled` once nothing is in flight,
    /// and keeps no process alive.
    #[napi]
    pub fn post(
        &self,
        transfer: f64,
        #[napi(ts_arg_type = "(failureJson: string | null) => void")] done: Function<'_, FailureArgs, ()>,
        settled: Function<'_, (), ()>,
    ) -> Result<()> {
        // Whoever waits keeps the event loop alive; a transfer that was given up must not.
        let done = done.build_threadsafe_function::<FailureArgs>().callee_handled::<false>().build()?;
        let settled = settled.build_threadsafe_function::<()>().callee_handled::<false>().weak::<true>().build()?;
        self.thread.post(
            transfer as u64,
            Box::new(move |outcome| {
                done.call((outcome.err().map(|error| failure_json(&error)),).into(), ThreadsafeFunctionCallMode::NonBlocking);
            }),
            Box::new(move || {
                settled.call((), ThreadsafeFunctionCallMode::NonBlocking);
            }),
        );
        Ok(())
    }

    #[napi]
    pub fn abort(&self, transfer: f64) {
        self.thread.abort(transfer as u64);
    }

    #[napi]
    pub fn release_transfer<'env>(&self, env: &'env Env, transfer: f64) -> Result<PromiseRaw<'env, ()>> {
        answered(env, |answer| self.thread.release_transfer(transfer as u64, answer), |()| ())
    }

    #[napi]
    pub fn metadata<'env>(&self, env: &'env Env) -> Result<PromiseRaw<'env, Uint8Array>> {
        answered(env, |answer| self.thread.metadata(answer), Uint8Array::from)
    }

    /// Name of the other agent.
    #[napi]
    pub fn load_remote<'env>(&self, env: &'env Env, metadata: Uint8Array) -> Result<PromiseRaw<'env, String>> {
        let metadata = metadata.to_vec();
        answered(env, |answer| self.thread.load_remote(metadata, answer), |name| name)
    }

    #[napi]
    pub fn forget_remote<'env>(&self, env: &'env Env, name: String) -> Result<PromiseRaw<'env, ()>> {
        answered(env, |answer| self.thread.forget_remote(name, answer), |()| ())
    }

    /// Aborts, waits for what is in flight, gives everything back, ends. `done` keeps no process
    /// alive.
    #[napi]
    pub fn close(&self, #[napi(ts_arg_type = "(failureJson: string | null) => void")] done: Function<'_, FailureArgs, ()>) -> Result<()> {
        let done = done.build_threadsafe_function::<FailureArgs>().callee_handled::<false>().weak::<true>().build()?;
        self.thread.close(Box::new(move |outcome| {
            done.call((outcome.err().map(|error| failure_json(&error)),).into(), ThreadsafeFunctionCallMode::NonBlocking);
        }));
        Ok(())
    }
}

/// A file opened, or a descriptor duplicated, for NIXL. Registrations hold it beyond `close`.
#[napi]
pub struct NativeFile {
    file: RefCell<Option<Arc<HeldFile>>>,
}

impl NativeFile {
    fn over(file: HeldFile) -> Self {
        NativeFile { file: RefCell::new(Some(Arc::new(file))) }
    }

    fn held(&self) -> Result<Arc<HeldFile>> {
        self.file.borrow().clone().ok_or_else(|| thrown(Error::new("ERR_INTERNAL", "a closed file was used")))
    }
}

#[napi]
impl NativeFile {
    #[napi(getter)]
    pub fn number(&self) -> Result<i32> {
        Ok(self.held()?.number())
    }

    /// Path where it is known.
    #[napi(getter)]
    pub fn name(&self) -> Result<String> {
        Ok(self.held()?.name().to_owned())
    }

    /// Bytes when it was opened.
    #[napi(getter)]
    pub fn size(&self) -> Result<f64> {
        Ok(self.held()?.size() as f64)
    }

    /// What of the planned identity its file system did not keep, as in `TransferSummary`.
    #[napi(getter)]
    pub fn unkept(&self) -> Result<u32> {
        Ok(unkept_bits(self.held()?.unkept()).into())
    }

    /// ERR_TRANSFER_FILE_CHANGED when it is not what it was when it was opened.
    #[napi]
    pub fn require_unchanged<'env>(&self, env: &'env Env) -> Result<PromiseRaw<'env, ()>> {
        let file = self.held()?;
        in_background(env, &FILES, move || file.require_unchanged())
    }

    #[napi]
    pub fn close(&self) {
        drop(self.file.take());
    }
}

/// ERR_TRANSFER_OPEN
#[napi]
pub fn duplicate_file(fd: i32) -> Result<NativeFile> {
    HeldFile::duplicate(fd).map(NativeFile::over).map_err(thrown)
}

/// With `planned` and `size` of a plan: ERR_TRANSFER_FILE_CHANGED when the file is another, or in
/// another state. ERR_TRANSFER_OPEN
#[napi]
pub fn open_file<'env>(
    env: &'env Env,
    path: String,
    planned: Option<BigUint64Array>,
    size: Option<f64>,
) -> Result<PromiseRaw<'env, NativeFile>> {
    let planned = planned.and_then(|words| Some(Identity::from_words(*words.first_chunk::<IDENTITY_WORDS>()?, size? as u64)));
    in_background(env, &FILES, move || HeldFile::open(Path::new(&path), planned.as_ref()).map(NativeFile::over))
}

/// A promise for what the agent's thread answers.
fn answered<'env, T, R>(env: &'env Env, ask: impl FnOnce(Answer<T>), convert: fn(T) -> R) -> Result<PromiseRaw<'env, R>>
where
    T: Send + 'static,
    R: ToNapiValue + Send + 'static,
{
    let (deferred, promise) = env.create_deferred::<R, Box<dyn FnOnce(Env) -> Result<R>>>()?;
    ask(Box::new(move |outcome| match outcome {
        Ok(value) => {
            deferred.resolve(Box::new(move |_| Ok(convert(value))));
        }
        Err(error) => deferred.reject(thrown(error)),
    }));
    Ok(PromiseRaw::new(env.raw(), promise.raw()))
}

fn pairs(flat: Vec<String>) -> Vec<(String, String)> {
    flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn descriptors(pieces: &NixlDescriptors) -> CoreResult<(Kind, Vec<Descriptor>)> {
    let fits = |length: &f64| (0.0..=9_007_199_254_740_991.0).contains(length) && length.fract() == 0.0;
    if pieces.address.len() != pieces.length.len() || !pieces.length.iter().all(fits) || !fits(&pieces.device) {
        return Err(Error::new("ERR_INTERNAL", "columns of descriptors do not fit together"));
    }
    let device = pieces.device as u64;
    let columns = pieces.address.iter().zip(pieces.length.iter());
    let list = columns.map(|(address, length)| Descriptor { address: *address, length: *length as u64, device }).collect();
    let kind = match pieces.kind {
        SegmentKind::Dram => Kind::Dram,
        SegmentKind::Vram => Kind::Vram,
        SegmentKind::File => Kind::File,
    };
    Ok((kind, list))
}
