//! Binding of `mx_core::io`: transfers and mappings into an arena.

use std::path::PathBuf;
use std::time::Duration;

use mx_core::error::{Error, Result as CoreResult};
use mx_core::io::fault::{Fault, FaultKind, FaultPlan};
use mx_core::io::file::FileSpec;
use mx_core::io::layout::{DirectAlign, Segment};
use mx_core::io::map;
use mx_core::io::sys::Identity;
use mx_core::io::transfer::{Driver, Settings, Summary, Transfer};
use napi::bindgen_prelude::{BigInt64Array, BigUint64Array, Float64Array, FnArgs, Function, Uint32Array};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;

use crate::arena::NativeArena;
use crate::failure::{failure_json, thrown};

#[napi(object, object_to_js = false)]
pub struct TransferFiles {
    pub paths: Vec<String>,
    pub size: Float64Array,
    pub dev: BigUint64Array,
    pub ino: BigUint64Array,
    pub mtime_ns: BigInt64Array,
    pub dio_offset_align: Uint32Array,
    pub dio_mem_align: Uint32Array,
}

#[napi(object, object_to_js = false)]
pub struct TransferPieces {
    pub file: Uint32Array,
    pub offset: Float64Array,
    pub length: Float64Array,
    pub address: BigUint64Array,
}

#[napi(object, object_to_js = false)]
pub struct TransferSettings {
    pub driver: u32,
    pub threads: u32,
    pub buffered_block_bytes: f64,
    pub direct_block_bytes: f64,
    pub queue_depth: u32,
    pub faults: Option<Float64Array>,
}

#[napi(object, object_from_js = false)]
pub struct TransferSummary {
    pub buffered_bytes: Float64Array,
    pub cached_bytes: Float64Array,
    pub direct_bytes: Float64Array,
    pub fallback: Vec<String>,
    pub reads: f64,
}

#[napi]
pub struct NativeTransfer {
    transfer: Transfer,
}

#[napi]
impl NativeTransfer {
    #[napi]
    pub fn progress_bytes(&self) -> f64 {
        self.transfer.progress_bytes() as f64
    }

    #[napi]
    pub fn abort(&self) {
        self.transfer.abort();
    }
}

type DoneArgs = FnArgs<(Option<String>, Option<TransferSummary>)>;

#[napi]
pub fn start_transfer(
    arena: &NativeArena,
    files: TransferFiles,
    pieces: TransferPieces,
    settings: TransferSettings,
    done: Function<'_, DoneArgs, ()>,
    settled: Function<'_, (), ()>,
) -> napi::Result<NativeTransfer> {
    let files = file_specs(&files).map_err(thrown)?;
    let pieces = segments(&pieces, files.len()).map_err(thrown)?;
    let (settings, faults) = core_settings(&settings).map_err(thrown)?;
    let arena = arena.arena();
    let begin = pieces.iter().filter(|piece| piece.length > 0).map(|piece| piece.address).min();
    let end = pieces.iter().filter(|piece| piece.length > 0).map(|piece| piece.address + piece.length as usize).max();
    let pins = match (begin, end) {
        (Some(begin), Some(end)) => vec![arena.pin(begin, end - begin).map_err(thrown)?],
        _ => Vec::new(),
    };

    // `done` keeps the event loop alive until it was called; a transfer that was given up must not.
    let done = done.build_threadsafe_function::<DoneArgs>().callee_handled::<false>().build()?;
    let settled = settled.build_threadsafe_function::<()>().callee_handled::<false>().weak::<true>().build()?;
    let transfer = Transfer::start(
        settings,
        files,
        pieces,
        faults,
        pins,
        move |outcome| {
            let arguments = match outcome {
                Ok(summary) => (None, Some(js_summary(summary))),
                Err(error) => (Some(failure_json(&error)), None),
            };
            done.call(arguments.into(), ThreadsafeFunctionCallMode::NonBlocking);
        },
        move || {
            settled.call((), ThreadsafeFunctionCallMode::NonBlocking);
        },
    )
    .map_err(thrown)?;
    Ok(NativeTransfer { transfer })
}

#[napi]
pub fn map_files(arena: &NativeArena, files: TransferFiles, pieces: TransferPieces) -> napi::Result<()> {
    let files = file_specs(&files).map_err(thrown)?;
    let pieces = segments(&pieces, files.len()).map_err(thrown)?;
    map::map_files(&arena.arena(), files, &pieces).map_err(thrown)
}

fn misshapen(what: &str) -> Error {
    Error::new("ERR_INTERNAL", format!("columns of a transfer do not fit together: {what}"))
}

/// A byte count or offset of JavaScript: an integer from 0 to 2^53 - 1.
fn bytes(value: f64, what: &str) -> CoreResult<u64> {
    if (0.0..=9_007_199_254_740_991.0).contains(&value) && value.fract() == 0.0 { Ok(value as u64) } else { Err(misshapen(what)) }
}

fn file_specs(files: &TransferFiles) -> CoreResult<Vec<FileSpec>> {
    let count = files.paths.len();
    let lengths =
        [files.size.len(), files.dev.len(), files.ino.len(), files.mtime_ns.len(), files.dio_offset_align.len(), files.dio_mem_align.len()];
    if lengths.iter().any(|length| *length != count) {
        return Err(misshapen("files"));
    }
    (0..count)
        .map(|row| {
            Ok(FileSpec {
                path: PathBuf::from(&files.paths[row]),
                identity: Identity {
                    dev: files.dev[row],
                    ino: files.ino[row],
                    size: bytes(files.size[row], "size")?,
                    mtime_ns: files.mtime_ns[row],
                },
                align: DirectAlign::new(files.dio_offset_align[row], files.dio_mem_align[row]),
            })
        })
        .collect()
}

/// Checks what memory safety rests on: pieces in order, within their files, without overlap in a file.
fn segments(pieces: &TransferPieces, file_count: usize) -> CoreResult<Vec<Segment>> {
    let count = pieces.file.len();
    if [pieces.offset.len(), pieces.length.len(), pieces.address.len()].iter().any(|length| *length != count) {
        return Err(misshapen("pieces"));
    }
    let mut last = (0, 0);
    let mut out = Vec::with_capacity(count);
    for row in 0..count {
        let (file, offset, length) = (pieces.file[row], bytes(pieces.offset[row], "offset")?, bytes(pieces.length[row], "length")?);
        if file as usize >= file_count || (file, offset) < last {
            return Err(misshapen("order"));
        }
        last = (file, offset + length);
        let address = usize::try_from(pieces.address[row]).map_err(|_| misshapen("address"))?;
        if address.checked_add(length as usize).is_none() {
            return Err(misshapen("address"));
        }
        out.push(Segment { file, offset, length, address });
    }
    Ok(out)
}

fn core_settings(settings: &TransferSettings) -> CoreResult<(Settings, FaultPlan)> {
    let driver = match settings.driver {
        0 => Driver::Pread,
        1 => Driver::IoUring,
        2 => Driver::Auto,
        _ => return Err(misshapen("driver")),
    };
    let mut faults = Vec::new();
    for plan in settings.faults.iter().flat_map(|faults| faults.chunks_exact(3)) {
        let kind = match plan[0] as u32 {
            0 => FaultKind::Fail(plan[2] as i32),
            1 => FaultKind::Short(plan[2] as u64),
            2 => FaultKind::Stall(Duration::from_millis(plan[2] as u64)),
            _ => return Err(misshapen("faults")),
        };
        faults.push(Fault { nth: plan[1] as u64, kind });
    }
    let settings = Settings {
        driver,
        threads: settings.threads.clamp(1, 1024) as usize,
        buffered_block_bytes: bytes(settings.buffered_block_bytes, "block")?.max(4096),
        direct_block_bytes: bytes(settings.direct_block_bytes, "block")?.max(4096),
        queue_depth: settings.queue_depth.clamp(1, 4096),
    };
    Ok((settings, FaultPlan::new(faults)))
}

fn js_summary(summary: Summary) -> TransferSummary {
    let column = |value: fn(&mx_core::io::transfer::FileSummary) -> f64| Float64Array::new(summary.files.iter().map(value).collect());
    TransferSummary {
        buffered_bytes: column(|file| file.buffered_bytes as f64),
        cached_bytes: column(|file| file.cached_bytes.map_or(-1.0, |bytes| bytes as f64)),
        direct_bytes: column(|file| file.direct_bytes as f64),
        fallback: summary.files.iter().map(|file| file.fallback.clone()).collect(),
        reads: summary.reads as f64,
    }
}
