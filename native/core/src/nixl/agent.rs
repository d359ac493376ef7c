//! One NIXL agent with its plugins. Belongs to one thread.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use super::api::{AgentConfig, Handle, NixlApi};
use super::list::{Descriptor, Kind, List, describe};
use super::status::{IN_PROGRESS, SUCCESS, check, failed};
use crate::error::{Error, Result};

/// A plugin (NIXL's "backend") to make for an agent.
#[derive(Clone, Debug, Default)]
pub struct PluginSpec {
    pub name: String,
    /// Over the plugin's own defaults.
    pub parameters: Vec<(String, String)>,
    /// After a failure other pieces of the transfer may still be moving, which only the end of the
    /// agent ends.
    pub strands: bool,
}

/// How an agent is made.
#[derive(Clone, Debug, Default)]
pub struct AgentSpec {
    pub name: String,
    pub progress_thread: bool,
    pub listen_port: Option<u16>,
    pub plugins: Vec<PluginSpec>,
}

struct Plugin {
    spec: PluginSpec,
    backend: Handle,
    opt_args: Handle,
}

pub struct Agent {
    api: Arc<NixlApi>,
    name: CString,
    handle: Handle,
    plugins: Vec<Plugin>,
}

/// A transfer that NIXL knows.
pub struct Request {
    handle: Handle,
    released: bool,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    InFlight,
    Done,
}

impl Agent {
    /// Makes the agent and its plugins, and lists those that NIXL finds; a failure undoes what was
    /// made, in reverse. ERR_NIXL_AGENT, ERR_NIXL_PLUGIN
    pub fn create(api: Arc<NixlApi>, spec: AgentSpec) -> Result<(Self, Vec<String>)> {
        let name = text(&spec.name)?;
        let config = AgentConfig {
            progress_thread: spec.progress_thread,
            listen_thread: spec.listen_port.is_some(),
            listen_port: c_int::from(spec.listen_port.unwrap_or(0)),
            thread_sync: 0,
            workers: 1,
            // Microseconds between two looks; NIXL's own defaults (nixlAgentConfig).
            progress_delay_us: 0,
            listen_delay_us: 100_000,
            capture_telemetry: false,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: all three outlive the call.
        let status = unsafe { (api.create_configured_agent)(name.as_ptr(), &config, &mut handle) };
        check(status, "ERR_NIXL_AGENT", || format!("the agent {:?} cannot be made", spec.name), "nixl_capi_create_configured_agent")?;
        let mut agent = Agent { api, name, handle, plugins: Vec::new() };
        let added = spec.plugins.into_iter().try_for_each(|plugin| agent.add_plugin(plugin));
        match added.and_then(|()| agent.available_plugins()) {
            Ok(available) => Ok((agent, available)),
            Err(error) => {
                // The first error is the one to tell.
                let _ = agent.destroy();
                Err(error)
            }
        }
    }

    fn add_plugin(&mut self, spec: PluginSpec) -> Result<()> {
        let what = || format!("the plugin {} cannot be used by the agent {:?}", spec.name, self.name);
        let name = text(&spec.name)?;
        let (mut memories, mut parameters) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the agent is alive, the results have places.
        let status = unsafe { (self.api.get_plugin_params)(self.handle, name.as_ptr(), &mut memories, &mut parameters) };
        if status != SUCCESS {
            let available = self.available_plugins().unwrap_or_default();
            let what = format!("{}; NIXL has the plugins {}", what(), available.join(", "));
            let error = failed(status, "ERR_NIXL_PLUGIN", what, "nixl_capi_get_plugin_params");
            return Err(error.with("plugin", spec.name.as_str()).with("available", available.join(" ")));
        }
        // SAFETY: made above.
        unsafe { (self.api.destroy_mem_list)(memories) };
        let made = self.make_backend(&spec, &name, parameters);
        // SAFETY: made above; the backend has its own copy.
        unsafe { (self.api.destroy_params)(parameters) };
        let plugin =
            made.map_err(|(status, function)| failed(status, "ERR_NIXL_PLUGIN", what(), function).with("plugin", spec.name.as_str()))?;
        self.plugins.push(plugin);
        Ok(())
    }

    fn make_backend(&self, spec: &PluginSpec, name: &CStr, parameters: Handle) -> std::result::Result<Plugin, (c_int, &'static str)> {
        for (key, value) in &spec.parameters {
            let (Ok(key), Ok(value)) = (CString::new(key.as_str()), CString::new(value.as_str())) else {
                return Err((-1, "nixl_capi_params_add"));
            };
            // SAFETY: both texts outlive the call.
            answered(unsafe { (self.api.params_add)(parameters, key.as_ptr(), value.as_ptr()) }, "nixl_capi_params_add")?;
        }
        let mut plugin = Plugin { spec: spec.clone(), backend: ptr::null_mut(), opt_args: ptr::null_mut() };
        // SAFETY: agent and parameters are alive, the results have places.
        unsafe {
            let status = (self.api.create_backend)(self.handle, name.as_ptr(), parameters, &mut plugin.backend);
            answered(status, "nixl_capi_create_backend")?;
            let outcome = answered((self.api.create_opt_args)(&mut plugin.opt_args), "nixl_capi_create_opt_args").and_then(|()| {
                answered((self.api.opt_args_add_backend)(plugin.opt_args, plugin.backend), "nixl_capi_opt_args_add_backend")
            });
            if outcome.is_err() {
                self.drop_plugin(&plugin);
            }
            outcome.map(|()| plugin)
        }
    }

    fn drop_plugin(&self, plugin: &Plugin) -> (c_int, &'static str) {
        // SAFETY: the handles are this plugin's own, and nothing uses them any more.
        unsafe {
            if !plugin.opt_args.is_null() {
                let status = (self.api.destroy_opt_args)(plugin.opt_args);
                if status != SUCCESS {
                    return (status, "nixl_capi_destroy_opt_args");
                }
            }
            ((self.api.destroy_backend)(plugin.backend), "nixl_capi_destroy_backend")
        }
    }

    /// Names of the plugins that NIXL finds, loadable or not.
    pub fn available_plugins(&self) -> Result<Vec<String>> {
        let what = || "the plugins cannot be listed".to_owned();
        let (mut list, mut count, mut names) = (ptr::null_mut(), 0, Vec::new());
        // SAFETY: the agent is alive; the texts are copied before their list goes.
        unsafe {
            let status = (self.api.get_available_plugins)(self.handle, &mut list);
            check(status, "ERR_NIXL_AGENT", what, "nixl_capi_get_available_plugins")?;
            let sized = (self.api.string_list_size)(list, &mut count);
            for at in 0..count {
                let mut name: *const c_char = ptr::null();
                if (self.api.string_list_get)(list, at, &mut name) == SUCCESS && !name.is_null() {
                    names.push(CStr::from_ptr(name).to_string_lossy().into_owned());
                }
            }
            (self.api.destroy_string_list)(list);
            check(sized, "ERR_NIXL_AGENT", what, "nixl_capi_string_list_size")?;
        }
        names.sort();
        Ok(names)
    }

    pub fn api(&self) -> &Arc<NixlApi> {
        &self.api
    }

    pub fn plugin(&self, at: usize) -> Result<&PluginSpec> {
        self.plugin_at(at).map(|plugin| &plugin.spec)
    }

    fn plugin_at(&self, at: usize) -> Result<&Plugin> {
        self.plugins.get(at).ok_or_else(|| Error::new("ERR_INTERNAL", format!("the agent has no plugin number {at}")))
    }

    /// What another agent needs to reach this one's memory, by value.
    pub fn metadata(&self) -> Result<Vec<u8>> {
        let (mut data, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the result is malloc'd by NIXL and ours; it is copied before it is freed.
        unsafe {
            let status = (self.api.get_local_md)(self.handle, &mut data, &mut length);
            check(status, "ERR_NIXL_METADATA", || "the metadata cannot be exported".to_owned(), "nixl_capi_get_local_md")?;
            let bytes = if length == 0 { Vec::new() } else { std::slice::from_raw_parts(data as *const u8, length).to_vec() };
            libc::free(data);
            Ok(bytes)
        }
    }

    /// Makes another agent known; returns its name.
    pub fn load_remote(&self, metadata: &[u8]) -> Result<String> {
        let mut name: *mut c_char = ptr::null_mut();
        // SAFETY: the name is malloc'd by NIXL and ours; it is copied before it is freed.
        unsafe {
            let status = (self.api.load_remote_md)(self.handle, metadata.as_ptr() as *const c_void, metadata.len(), &mut name);
            let what = || format!("{} bytes of metadata cannot be loaded", metadata.len());
            check(status, "ERR_NIXL_METADATA", what, "nixl_capi_load_remote_md")?;
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            libc::free(name as *mut c_void);
            Ok(text)
        }
    }

    /// Forgets another agent, and disconnects from it.
    pub fn forget_remote(&self, name: &str) -> Result<()> {
        let text = text(name)?;
        // SAFETY: the text outlives the call.
        let status = unsafe { (self.api.invalidate_remote_md)(self.handle, text.as_ptr()) };
        check(status, "ERR_NIXL_METADATA", || format!("the agent {name:?} cannot be forgotten"), "nixl_capi_invalidate_remote_md")
    }

    /// Makes the pieces known to one plugin; returns the list that `deregister` needs.
    pub fn register(&self, plugin: usize, kind: Kind, descriptors: &[Descriptor]) -> Result<List> {
        let Plugin { spec, opt_args, .. } = self.plugin_at(plugin)?;
        let registered = List::registration(&self.api, kind, descriptors).and_then(|list| {
            // SAFETY: all three are alive.
            let status = unsafe { (self.api.register_mem)(self.handle, list.handle, *opt_args) };
            let what = || format!("{} cannot be registered with {}", describe(kind, descriptors), spec.name);
            check(status, "ERR_NIXL_REGISTER", what, "nixl_capi_register_mem").map(|()| list)
        });
        registered.map_err(|error| error.with("plugin", spec.name.as_str()))
    }

    pub fn deregister(&self, plugin: usize, list: &List) -> Result<()> {
        let Plugin { spec, opt_args, .. } = self.plugin_at(plugin)?;
        // SAFETY: all three are alive.
        let status = unsafe { (self.api.deregister_mem)(self.handle, list.handle, *opt_args) };
        check(status, "ERR_NIXL_DEREGISTER", || format!("a registration with {} cannot be undone", spec.name), "nixl_capi_deregister_mem")
            .map_err(|error| error.with("plugin", spec.name.as_str()))
    }

    /// Prepares a read of `remote` (of that agent; None for this one) into `local`, or a write from
    /// it.
    pub fn create_request(&self, plugin: usize, write: bool, local: &List, remote: &List, agent: Option<&str>) -> Result<Request> {
        let Plugin { spec, opt_args, .. } = self.plugin_at(plugin)?;
        let other = agent.map(text).transpose()?;
        let name = other.as_deref().unwrap_or(&self.name);
        let mut handle = ptr::null_mut();
        // SAFETY: everything is alive; NIXL copies the lists.
        let status = unsafe {
            (self.api.create_xfer_req)(self.handle, c_int::from(write), local.handle, remote.handle, name.as_ptr(), &mut handle, *opt_args)
        };
        check(status, "ERR_NIXL_TRANSFER", || format!("{} refuses the transfer", spec.name), "nixl_capi_create_xfer_req")?;
        Ok(Request { handle, released: false })
    }

    pub fn post(&self, plugin: usize, request: &Request) -> Result<Progress> {
        let Plugin { spec, opt_args, .. } = self.plugin_at(plugin)?;
        // SAFETY: all three are alive.
        let status = unsafe { (self.api.post_xfer_req)(self.handle, request.handle, *opt_args) };
        progress(status, || format!("{} could not start the transfer", spec.name), "nixl_capi_post_xfer_req")
    }

    pub fn progress(&self, plugin: usize, request: &Request) -> Result<Progress> {
        let Plugin { spec, .. } = self.plugin_at(plugin)?;
        // SAFETY: both are alive.
        let status = unsafe { (self.api.get_xfer_status)(self.handle, request.handle) };
        progress(status, || format!("{} failed in the transfer", spec.name), "nixl_capi_get_xfer_status")
    }

    /// Gives a request back that is not in flight. After a failure it can be tried again.
    pub fn release(&self, request: &mut Request) -> Result<()> {
        let what = || "a transfer cannot be released".to_owned();
        // SAFETY: the request is alive, and destroyed only after NIXL let go of it.
        unsafe {
            if !request.released {
                let status = (self.api.release_xfer_req)(self.handle, request.handle);
                check(status, "ERR_NIXL_RELEASE", what, "nixl_capi_release_xfer_req")?;
                request.released = true;
            }
            check((self.api.destroy_xfer_req)(request.handle), "ERR_NIXL_RELEASE", what, "nixl_capi_destroy_xfer_req")
        }
    }

    /// Ends plugins, in reverse, and agent. Nothing may be registered or in flight: NIXL may abort
    /// the process otherwise. Goes on after errors, and tells the first.
    pub fn destroy(mut self) -> Result<()> {
        let mut first = None;
        while let Some(plugin) = self.plugins.pop() {
            let (status, function) = self.drop_plugin(&plugin);
            let what = || format!("the plugin {} cannot be ended", plugin.spec.name);
            first = first.or(check(status, "ERR_NIXL_CLOSE", what, function).err());
        }
        // SAFETY: nothing uses the agent any more.
        let status = unsafe { (self.api.destroy_agent)(self.handle) };
        let what = || format!("the agent {:?} cannot be ended", self.name);
        first = first.or(check(status, "ERR_NIXL_CLOSE", what, "nixl_capi_destroy_agent").err());
        first.map_or(Ok(()), Err)
    }
}

fn answered(status: c_int, function: &'static str) -> std::result::Result<(), (c_int, &'static str)> {
    if status == SUCCESS { Ok(()) } else { Err((status, function)) }
}

fn progress(status: c_int, what: impl FnOnce() -> String, function: &'static str) -> Result<Progress> {
    match status {
        SUCCESS => Ok(Progress::Done),
        IN_PROGRESS => Ok(Progress::InFlight),
        _ => Err(failed(status, "ERR_NIXL_TRANSFER", what(), function)),
    }
}

fn text(value: &str) -> Result<CString> {
    CString::new(value).map_err(|_| Error::new("ERR_NIXL_AGENT", format!("{value:?} has a zero byte in it")))
}
