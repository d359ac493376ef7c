use std::sync::{Arc, Mutex};

use super::stand_in::{BASE, GRANULE, OTHER_CONTEXT, TOTAL_BYTES, api, driver};
use super::types::*;
use super::*;
use crate::arena::Arena;
use crate::error::{Error, Fact};
use crate::vmm::{MemoryKind, VmmBackend};

type Notices = Arc<Mutex<Vec<Notice>>>;

fn backend_over(api: &'static CudaApi) -> Result<(CudaBackend, Notices), Error> {
    let notices = Notices::default();
    let told = Arc::clone(&notices);
    let device = CudaDevice::open(api, 0)?;
    Ok((CudaBackend::new(device, move |notice| told.lock().unwrap().push(notice))?, notices))
}

fn fact(error: &Error, name: &str) -> Option<Fact> {
    error.facts.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
}

fn calls_since(mark: usize) -> Vec<String> {
    driver(|driver| driver.calls[mark..].to_vec())
}

fn mark() -> usize {
    driver(|driver| driver.calls.len())
}

#[test]
fn memory_lives_between_allocate_and_deallocate() {
    let (backend, _) = backend_over(api()).unwrap();
    assert_eq!((backend.memory(), backend.allocation_granularity()), (MemoryKind::Device, GRANULE));
    assert_eq!(backend.reserve(8 * GRANULE).unwrap() as u64, BASE);
    let before = mark();
    let handle = backend.allocate(BASE as usize, 2 * GRANULE).unwrap();
    assert_eq!(calls_since(before), ["push", "create 4194304 8", "create 4194304 1", "map 1", "access 3", "pop"]);
    assert_eq!(driver(|driver| driver.mapped[&BASE]), (2 * GRANULE, handle, true));
    let before = mark();
    backend.deallocate(BASE as usize, 2 * GRANULE, handle).unwrap();
    assert_eq!(calls_since(before), ["push", "unmap", "release 1", "pop"]);
    backend.release_reserve(BASE as usize, 8 * GRANULE).unwrap();
    drop(backend);
    assert!(driver(|driver| driver.empty()));
}

#[test]
fn free_memory_is_what_nobody_has_taken() {
    let (backend, _) = backend_over(api()).unwrap();
    assert_eq!(backend.device().free_bytes().unwrap(), TOTAL_BYTES);
    backend.reserve(8 * GRANULE).unwrap();
    backend.allocate(BASE as usize, 2 * GRANULE).unwrap();
    let before = mark();
    assert_eq!(backend.device().free_bytes().unwrap(), TOTAL_BYTES - 2 * GRANULE);
    assert_eq!(calls_since(before), ["push", "memory info", "pop"]);
    driver(|driver| driver.failing = vec![("cuMemGetInfo", 3, ERROR_NOT_PERMITTED)]);
    let error = backend.device().free_bytes().unwrap_err();
    assert_eq!((error.code, fact(&error, "device")), ("ERR_CUDA_CALL", Some(Fact::from("cuda:0"))));
    assert!(driver(|driver| driver.contexts.is_empty()));
}

#[test]
fn another_context_of_the_thread_is_current_again_afterwards() {
    let (backend, _) = backend_over(api()).unwrap();
    driver(|driver| driver.contexts.push(OTHER_CONTEXT));
    backend.reserve(GRANULE).unwrap();
    assert_eq!(driver(|driver| driver.contexts.clone()), [OTHER_CONTEXT]);
    let entered = backend.device().enter().unwrap();
    let before = mark();
    backend.allocate(BASE as usize, GRANULE).unwrap();
    assert!(!calls_since(before).contains(&"push".to_owned()));
    drop(entered);
    assert_eq!(driver(|driver| driver.contexts.clone()), [OTHER_CONTEXT]);
}

#[test]
fn the_rdma_flag_follows_the_device() {
    for (able, flag) in [(1, 1), (0, 0)] {
        let api = api();
        driver(|driver| driver.attributes.insert(attribute::GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, able));
        let (backend, _) = backend_over(api).unwrap();
        backend.reserve(GRANULE).unwrap();
        backend.allocate(BASE as usize, GRANULE).unwrap();
        assert_eq!(driver(|driver| driver.rdma_flags.clone()), [flag, flag]);
    }
}

#[test]
fn fabric_is_asked_for_once_and_its_refusal_said_once() {
    for status in [ERROR_NOT_SUPPORTED, ERROR_NOT_PERMITTED] {
        let api = api();
        driver(|driver| driver.fabric = status);
        let (backend, notices) = backend_over(api).unwrap();
        backend.reserve(8 * GRANULE).unwrap();
        assert_eq!((backend.handle_type(), notices.lock().unwrap().len()), (None, 0));
        for at in 0..3 {
            backend.allocate(BASE as usize + at * GRANULE, GRANULE).unwrap();
        }
        assert_eq!(driver(|driver| driver.requested_handle_types.clone()), [8, 1, 1, 1]);
        let notices = notices.lock().unwrap();
        assert_eq!((notices.len(), notices[0].handle_type, notices[0].device.as_str()), (1, HandleType::PosixFile, "cuda:0"));
        assert!(notices[0].reason.starts_with("cuMemCreate failed with CUDA_ERROR_NOT_"), "{}", notices[0].reason);
    }
}

#[test]
fn fabric_is_kept_where_the_host_has_it() {
    let api = api();
    driver(|driver| driver.fabric = SUCCESS);
    let (backend, notices) = backend_over(api).unwrap();
    backend.reserve(8 * GRANULE).unwrap();
    for at in 0..2 {
        backend.allocate(BASE as usize + at * GRANULE, GRANULE).unwrap();
    }
    assert_eq!(driver(|driver| driver.requested_handle_types.clone()), [8, 8]);
    assert_eq!((backend.handle_type(), notices.lock().unwrap().len()), (Some(HandleType::Fabric), 0));
}

#[test]
fn out_of_memory_says_nothing_about_fabric() {
    let (backend, notices) = backend_over(api()).unwrap();
    driver(|driver| driver.failing.push(("cuMemCreate", 1, ERROR_OUT_OF_MEMORY)));
    backend.reserve(8 * GRANULE).unwrap();
    let error = backend.allocate(BASE as usize, GRANULE).unwrap_err();
    assert_eq!(error.code, "ERR_CUDA_OUT_OF_MEMORY");
    assert_eq!((backend.handle_type(), notices.lock().unwrap().len()), (None, 0));
    backend.allocate(BASE as usize, GRANULE).unwrap();
    assert_eq!(driver(|driver| driver.requested_handle_types.clone()), [8, 1]);
}

#[test]
fn devices_that_know_no_fabric_or_no_handles_are_not_asked() {
    for (posix, handle_type) in [(1, HandleType::PosixFile), (0, HandleType::None)] {
        let api = api();
        driver(|driver| {
            driver.attributes.remove(&attribute::HANDLE_TYPE_FABRIC_SUPPORTED);
            driver.attributes.insert(attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, posix);
        });
        let (backend, notices) = backend_over(api).unwrap();
        assert_eq!((backend.handle_type(), notices.lock().unwrap().len()), (Some(handle_type), 1));
        assert_eq!(backend.allocation_granularity(), GRANULE / 2);
        backend.reserve(GRANULE).unwrap();
        backend.allocate(BASE as usize, GRANULE).unwrap();
        assert_eq!(driver(|driver| driver.requested_handle_types.clone()), [handle_type as i32]);
    }
}

#[test]
fn what_was_done_is_undone_in_reverse_when_a_step_fails() {
    let steps: [(&str, &[&str]); 2] =
        [("cuMemMap", &["map 1", "release 1", "pop"]), ("cuMemSetAccess", &["access 3", "unmap", "release 1", "pop"])];
    for (step, expected) in steps {
        let (backend, _) = backend_over(api()).unwrap();
        driver(|driver| driver.failing.push((step, 1, 999)));
        backend.reserve(GRANULE).unwrap();
        let error = backend.allocate(BASE as usize, GRANULE).unwrap_err();
        assert_eq!((error.code, fact(&error, "operation"), fact(&error, "undoing")), ("ERR_CUDA_ALLOCATE", Some(step.into()), None));
        assert_eq!(fact(&error, "status"), Some("CUresult 999".into()));
        let calls = calls_since(0);
        assert_eq!(calls[calls.len() - expected.len()..], *expected);
        assert!(driver(|driver| driver.handles.is_empty() && driver.mapped.is_empty()));
    }
}

#[test]
fn a_failed_undoing_does_not_hide_the_first_error() {
    let (backend, _) = backend_over(api()).unwrap();
    driver(|driver| driver.failing = vec![("cuMemSetAccess", 1, ERROR_OUT_OF_MEMORY), ("cuMemUnmap", 1, 999), ("cuMemRelease", 1, 999)]);
    backend.reserve(GRANULE).unwrap();
    let error = backend.allocate(BASE as usize, GRANULE).unwrap_err();
    assert_eq!((error.code, fact(&error, "operation")), ("ERR_CUDA_OUT_OF_MEMORY", Some("cuMemSetAccess".into())));
    let undoing =
        "cuMemUnmap failed with CUresult 999 (unknown to this driver), cuMemRelease failed with CUresult 999 (unknown to this driver)";
    assert_eq!(fact(&error, "undoing"), Some(undoing.into()));
    assert!(error.message.ends_with(undoing), "{}", error.message);
}

#[test]
fn release_is_tried_when_unmap_fails_and_both_are_told() {
    for failing in [vec!["cuMemUnmap"], vec!["cuMemRelease"], vec!["cuMemUnmap", "cuMemRelease"]] {
        let (backend, _) = backend_over(api()).unwrap();
        driver(|driver| driver.failing = failing.iter().map(|name| (*name, 1, ERROR_NOT_PERMITTED)).collect());
        backend.reserve(GRANULE).unwrap();
        let handle = backend.allocate(BASE as usize, GRANULE).unwrap();
        let error = backend.deallocate(BASE as usize, GRANULE, handle).unwrap_err();
        assert_eq!((error.code, fact(&error, "operation")), ("ERR_CUDA_RELEASE", Some(failing[0].into())));
        assert!(failing.iter().all(|name| error.message.contains(name)), "{}", error.message);
        assert_eq!(fact(&error, "also").is_some(), failing.len() == 2);
        assert_eq!(driver(|driver| (driver.count("cuMemUnmap"), driver.count("cuMemRelease"))), (1, 1));
    }
}

#[test]
fn memory_goes_back_also_when_no_context_can_be_had() {
    let (backend, _) = backend_over(api()).unwrap();
    backend.reserve(GRANULE).unwrap();
    let handle = backend.allocate(BASE as usize, GRANULE).unwrap();
    driver(|driver| driver.failing = vec![("cuCtxPushCurrent", 3, 201), ("cuCtxPushCurrent", 4, 201)]);
    backend.deallocate(BASE as usize, GRANULE, handle).unwrap();
    backend.release_reserve(BASE as usize, GRANULE).unwrap();
    assert!(driver(|driver| driver.handles.is_empty() && driver.reserved.is_none()));
}

#[test]
fn a_refused_reserve_says_what_to_do() {
    let (backend, _) = backend_over(api()).unwrap();
    driver(|driver| driver.failing.push(("cuMemAddressReserve", 1, ERROR_OUT_OF_MEMORY)));
    let error = backend.reserve(1 << 44).unwrap_err();
    assert_eq!((error.code, fact(&error, "status")), ("ERR_CUDA_RESERVE_REFUSED", Some("CUDA_ERROR_OUT_OF_MEMORY".into())));
    assert!(error.message.contains("17592186044416 bytes") && error.message.contains("totalBytes"), "{}", error.message);
}

#[test]
fn memory_is_copied_to_the_host_in_the_context() {
    let (backend, _) = backend_over(api()).unwrap();
    let arena = Arc::new(Arena::with_backend(Box::new(backend), 4 * GRANULE).unwrap());
    let address = arena.malloc(1).unwrap();
    let before = mark();
    assert_eq!(arena.copy_to_host(address + 254, 4).unwrap(), [254, 255, 0, 1]);
    assert_eq!(calls_since(before), ["push", "copy 4", "pop"]);
    assert_eq!(arena.copy_to_host(address + GRANULE, 1).unwrap_err().code, "ERR_ARENA_ADDRESS");
    driver(|driver| driver.failing.push(("cuMemcpyDtoH", 2, 719)));
    let error = arena.copy_to_host(address, 1).unwrap_err();
    assert_eq!(
        (error.code, fact(&error, "operation"), fact(&error, "device")),
        ("ERR_CUDA_CALL", Some("cuMemcpyDtoH".into()), Some("cuda:0".into()))
    );
    assert_eq!(arena.stats().pins, 0);
    arena.close().unwrap();
}

#[test]
fn one_allocation_is_one_region_and_two_are_not() {
    let (backend, _) = backend_over(api()).unwrap();
    let arena = Arena::with_backend(Box::new(backend), 4 * GRANULE).unwrap();
    let [first, second] = [(); 2].map(|()| arena.malloc(1).unwrap());
    let before = mark();
    arena.prove_one_region(second, GRANULE).unwrap();
    assert_eq!(calls_since(before), ["push", "range 2097152 1", "pop"]);
    let error = arena.prove_one_region(first, 2 * GRANULE).unwrap_err();
    assert_eq!((error.code, fact(&error, "operation")), ("ERR_CUDA_REGION", Some("cuMemGetHandleForAddressRange".into())));
    assert_eq!((fact(&error, "address"), fact(&error, "length")), (Some(format!("{first:#x}").into()), Some((2 * GRANULE).into())));
    arena.close().unwrap();
}

#[test]
fn set_up_failures_have_codes_and_leave_nothing() {
    let cases = [
        ("cuDeviceGetCount", 1, "ERR_CUDA_CALL"),
        ("cuDeviceGetAttribute", 3, "ERR_CUDA_CALL"),
        ("cuDevicePrimaryCtxRetain", 1, "ERR_CUDA_NO_CONTEXT"),
        ("cuMemGetAllocationGranularity", 1, "ERR_CUDA_CALL"),
        ("cuMemGetAllocationGranularity", 2, "ERR_CUDA_CALL"),
    ];
    for (name, nth, code) in cases {
        let api = api();
        driver(|driver| driver.failing.push((name, nth, ERROR_OUT_OF_MEMORY)));
        let error = backend_over(api).map(|_| ()).unwrap_err();
        assert_eq!((error.code, fact(&error, "status")), (code, Some("CUDA_ERROR_OUT_OF_MEMORY".into())), "{name}");
        assert!(driver(|driver| driver.empty()), "{name}");
    }
}

#[test]
fn a_granularity_that_refuses_fabric_settles_it() {
    let api = api();
    driver(|driver| driver.failing.push(("cuMemGetAllocationGranularity", 2, ERROR_NOT_SUPPORTED)));
    let (backend, notices) = backend_over(api).unwrap();
    assert_eq!((backend.handle_type(), notices.lock().unwrap().len()), (Some(HandleType::PosixFile), 1));
}

#[test]
fn devices_that_are_not_there_or_cannot_map_are_refused() {
    let api = api();
    for ordinal in [-1, 1] {
        let error = CudaDevice::open(api, ordinal).map(|_| ()).unwrap_err();
        assert_eq!((error.code, fact(&error, "deviceCount")), ("ERR_CUDA_DEVICE", Some(1usize.into())));
    }
    driver(|driver| driver.attributes.insert(attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    let error = CudaDevice::open(api, 0).map(|_| ()).unwrap_err();
    assert_eq!(error.code, "ERR_CUDA_DEVICE");
    assert!(error.message.contains("virtual memory management"), "{}", error.message);
    assert!(driver(|driver| driver.empty()));
}

#[test]
fn facts_of_devices_need_no_context() {
    let facts = device_facts(api()).unwrap();
    assert_eq!(facts.len(), 1);
    assert_eq!((facts[0].name.as_str(), facts[0].total_bytes, facts[0].compute_capability.as_str()), ("Stand-in", 1 << 34, "9.0"));
    assert!(driver(|driver| driver.count("cuDevicePrimaryCtxRetain") == 0));
}

#[test]
fn no_library_is_an_error_that_names_what_was_tried() {
    let error = open(Some("/nonexistent/libcuda.so.1")).map(|_| ()).unwrap_err();
    assert_eq!(error.code, "ERR_CUDA_LIBRARY");
    assert!(error.message.contains("/nonexistent/libcuda.so.1: ") && error.message.contains("No such file"), "{}", error.message);
}

#[test]
fn a_library_without_the_functions_is_an_error_that_names_them() {
    let error = open(Some("libc.so.6")).map(|_| ()).unwrap_err();
    assert_eq!(error.code, "ERR_CUDA_SYMBOLS");
    assert!(error.message.contains("cuInit, ") && error.message.contains("cuMemSetAccess"), "{}", error.message);
}

/// An arena's life, with every call of it failing once: a documented code or none at all, and
/// nothing left save what the failed release held.
#[test]
fn a_failure_of_any_call_leaves_nothing_behind() {
    let life = || -> Result<(), Error> {
        let (backend, _) = backend_over(api_kept())?;
        let arena = Arena::with_backend(Box::new(backend), 16 * GRANULE)?;
        let used = (|| {
            let first = arena.malloc(1)?;
            arena.malloc(3 * GRANULE)?;
            arena.free(first)?;
            arena.malloc(GRANULE)
        })();
        used.and(arena.close()).map(|_| ())
    };
    api();
    life().unwrap();
    let counts: Vec<(&'static str, usize)> = FALLIBLE.iter().map(|name| (*name, driver(|driver| driver.count(name)))).collect();
    for (name, count) in counts {
        assert!(count > 0, "{name} is not called");
        for nth in 1..=count {
            api();
            driver(|driver| driver.failing.push((name, nth, 719)));
            let outcome = life();
            let releasing =
                matches!(name, "cuMemUnmap" | "cuMemRelease" | "cuMemAddressFree" | "cuDevicePrimaryCtxRelease" | "cuCtxPopCurrent");
            driver(|driver| {
                if let Err(error) = &outcome {
                    assert!(error.code.starts_with("ERR_CUDA_"), "{name} {nth}: {error}");
                }
                assert!(releasing || driver.empty(), "{name} {nth}: {:?}", driver.calls);
                assert!(driver.handles.len() <= 1 && driver.mapped.len() <= 1, "{name} {nth}");
            });
        }
    }
}

const FALLIBLE: [&str; 14] = [
    "cuDeviceGetCount",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
];

/// The table of the driver as it stands: `api` would make it afresh.
fn api_kept() -> &'static CudaApi {
    use std::cell::OnceCell;
    thread_local!(static KEPT: OnceCell<&'static CudaApi> = const { OnceCell::new() });
    let planned = driver(std::mem::take);
    let kept = KEPT.with(|kept| *kept.get_or_init(api));
    driver(|driver| *driver = planned);
    kept
}
