//! Binding of `mx_core::io`: transfers and mappings into an arena.

use std::path::PathBuf;
use std::sync::Arc;

use mx_core::arena::{Arena, Pin};
use mx_core::error::{Error, Result as CoreResult};
use mx_core::io::align::DirectAlign;
#[cfg(not(feature = "faults"))]
use mx_core::io::engine::Wrap;
use mx_core::io::file::FileSpec;
use mx_core::io::identity::{IDENTITY_WORDS, Identity, Unkept};
use mx_core::io::layout::Piece;
use mx_core::io::map;
use mx_core::io::settings::{Driver, Settings};
use mx_core::io::transfer::{FileSummary, Summary, Transfer};
use mx_core::sys;
use napi::Env;
use napi::bindgen_prelude::{BigUint64Array, Float64Array, FnArgs, Function, PromiseRaw, Uint8Array, Uint32Array};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;

use crate::arena::NativeArena;
use crate::background::{FILES, in_background};
use crate::failure::{failure_json, thrown};

/// Files of a transfer, one entry per file: path and the identity that the plan was made from.
#[napi(object, object_to_js = false)]
pub struct TransferFiles {
    pub paths: Vec<String>,
    pub size: Float64Array,
    /// As in `ShardColumns`.
    pub identity: BigUint64Array,
    pub dio_offset_align: Uint32Array,
    pub dio_mem_align: Uint32Array,
}

/// What to read, one entry per piece, sorted by (file, offset), pieces of a file not overlapping.
#[napi(object, object_to_js = false)]
pub struct TransferPieces {
    pub file: Uint32Array,
    pub offset: Float64Array,
    pub length: Float64Array,
    pub address: BigUint64Array,
}

/// Which lanes a transfer may use: buffered reads only, direct ones where they can be made, or both
/// at once with a way out.
#[napi(string_enum)]
pub enum ReadDriver {
    #[napi(value = "pread")]
    Pread,
    #[napi(value = "io_uring")]
    IoUring,
    #[napi(value = "auto")]
    Auto,
}

#[napi(object, object_to_js = false)]
pub struct TransferSettings {
    pub driver: ReadDriver,
    /// Reading threads.
    pub threads: u32,
    /// Longest single read in bytes, buffered.
    pub buffered_block_bytes: f64,
    /// The same, direct.
    pub direct_block_bytes: f64,
    /// Direct reads in flight.
    pub queue_depth: u32,
}

/// What a transfer did, one entry per file.
#[napi(object, object_from_js = false)]
pub struct TransferSummary {
    pub buffered_bytes: Float64Array,
    /// Of `bufferedBytes`, those found in the page cache beforehand; null where nobody asked.
    #[napi(ts_type = "(number | null)[]")]
    pub cached_bytes: Vec<Option<f64>>,
    pub direct_bytes: Float64Array,
    /// 1 where direct reads were made by threads: io_uring is refused, or not known to be sound on
    /// the file system.
    pub direct_by_threads: Uint8Array,
    /// Why a file was not read the way `auto` prefers; empty where it was.
    pub fallback: Vec<String>,
    /// What of each file's identity its file system did not keep: bit 0 the inode number, bit 1 the
    /// time of modification.
    pub unkept: Uint8Array,
    /// Reads made, of both lanes.
    pub reads: f64,
}

/// A transfer in flight. It pins its allocations in the arena until it has settled.
#[napi]
pub struct NativeTransfer {
    transfer: Transfer,
}

#[napi]
impl NativeTransfer {
    /// Bytes in place so far.
    #[napi]
    pub fn progress_bytes(&self) -> f64 {
        self.transfer.progress_bytes() as f64
    }

    /// Starts no further reads. The `done` callback comes no later than now; `settled` when the
    /// last read has returned.
    #[napi]
    pub fn abort(&self) {
        self.transfer.abort();
    }
}

type DoneArgs = FnArgs<(Option<String>, Option<TransferSummary>)>;

/// Starts reading into `arena`. `done` comes exactly once, `settled` once after nothing is in
/// flight any more.
#[napi]
pub fn start_transfer(
    arena: &NativeArena,
    files: TransferFiles,
    pieces: TransferPieces,
    settings: TransferSettings,
    #[napi(ts_arg_type = "(failureJson: string | null, summary: TransferSummary | null) => void")] done: Function<'_, DoneArgs, ()>,
    settled: Function<'_, (), ()>,
) -> napi::Result<NativeTransfer> {
    let files = file_specs(&files).map_err(thrown)?;
    let pieces = checked_pieces(&pieces, &files).map_err(thrown)?;
    let settings = core_settings(&settings).map_err(thrown)?;
    let ranges = pieces.iter().map(|piece| (piece.address, piece.length as usize));
    let pins = pin_all(&arena.arena(), ranges).map_err(thrown)?.into_iter().collect();

    // `done` keeps the event loop alive until it was called; a transfer that was given up must not.
    let done = done.build_threadsafe_function::<DoneArgs>().callee_handled::<false>().build()?;
    let settled = settled.build_threadsafe_function::<()>().callee_handled::<false>().weak::<true>().build()?;
    let transfer = Transfer::start(
        settings,
        files,
        pieces,
        engines(),
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

/// Maps each piece privately over its place in a host arena, on a native thread: addresses
/// congruent to file offsets modulo the page size, the pages of a piece belong to no other.
/// Resolves to what `TransferSummary.unkept` holds.
#[napi]
pub fn map_files<'env>(
    env: &'env Env,
    arena: &NativeArena,
    files: TransferFiles,
    pieces: TransferPieces,
) -> napi::Result<PromiseRaw<'env, Uint8Array>> {
    let files = file_specs(&files).map_err(thrown)?;
    let pieces = checked_pieces(&pieces, &files).map_err(thrown)?;
    let pages = pieces.iter().map(|piece| {
        let head = piece.address % sys::page_bytes();
        (piece.address - head, if piece.length == 0 { 0 } else { piece.length as usize + head })
    });
    let pin = pin_all(&arena.arena(), pages).map_err(thrown)?;
    in_background(env, &FILES, move || {
        let outcome = map::map_files(files, &pieces);
        drop(pin);
        Ok(Uint8Array::new(outcome?.into_iter().map(unkept_bits).collect()))
    })
}

/// Holds the one allocation that all these ranges `(address, length)` lie in; None where none has a
/// byte.
pub fn pin_all(arena: &Arc<Arena>, ranges: impl Iterator<Item = (usize, usize)>) -> CoreResult<Option<Pin>> {
    if !arena.host_memory() {
        let message = "the memory of this arena cannot be touched by the host: its backend does not say memory: \"host\"";
        return Err(Error::new("ERR_ARENA_NOT_LOADABLE", message));
    }
    let bounds = ranges.filter(|(_, length)| *length > 0).fold(None, |bounds: Option<(usize, usize)>, (address, length)| {
        let (begin, end) = bounds.unwrap_or((address, address));
        Some((begin.min(address), end.max(address + length)))
    });
    bounds.map(|(begin, end)| arena.pin(begin, end - begin)).transpose()
}

fn misshapen(what: &str) -> Error {
    Error::new("ERR_INTERNAL", format!("columns of a transfer do not fit together: {what}"))
}

/// A byte count or offset of JavaScript: an integer from 0 to 2^53 - 1.
fn bytes(value: f64, what: &str) -> CoreResult<u64> {
    if (0.0..=9_007_199_254_740_991.0).contains(&value) && value.fract() == 0.0 { Ok(value as u64) } else { Err(misshapen(what)) }
}

pub fn file_specs(files: &TransferFiles) -> CoreResult<Vec<FileSpec>> {
    let count = files.paths.len();
    let identities = files.identity.as_chunks::<IDENTITY_WORDS>();
    let lengths = [files.size.len(), identities.0.len(), files.dio_offset_align.len(), files.dio_mem_align.len()];
    if !identities.1.is_empty() || lengths.iter().any(|length| *length != count) {
        return Err(misshapen("files"));
    }
    (0..count)
        .map(|row| {
            Ok(FileSpec {
                path: PathBuf::from(&files.paths[row]),
                identity: Identity::from_words(identities.0[row], bytes(files.size[row], "size")?),
                align: DirectAlign::new(files.dio_offset_align[row], files.dio_mem_align[row]),
            })
        })
        .collect()
}

/// Checks what memory safety rests on: pieces in order, within their files, without overlap in a
/// file.
pub fn checked_pieces(pieces: &TransferPieces, files: &[FileSpec]) -> CoreResult<Vec<Piece>> {
    let count = pieces.file.len();
    if [pieces.offset.len(), pieces.length.len(), pieces.address.len()].iter().any(|length| *length != count) {
        return Err(misshapen("pieces"));
    }
    let mut last = (0, 0);
    let mut out = mx_core::memory::room(count, "the pieces of a transfer")?;
    for row in 0..count {
        let (file, offset, length) = (pieces.file[row], bytes(pieces.offset[row], "offset")?, bytes(pieces.length[row], "length")?);
        let inside = files.get(file as usize).is_some_and(|spec| offset + length <= spec.identity.size());
        if !inside || (file, offset) < last {
            return Err(misshapen("order, or the end of a file"));
        }
        last = (file, offset + length);
        let address = usize::try_from(pieces.address[row]).map_err(|_| misshapen("address"))?;
        if address.checked_add(length as usize).is_none() {
            return Err(misshapen("address"));
        }
        out.push(Piece { file, offset, length, address });
    }
    Ok(out)
}

pub fn core_settings(settings: &TransferSettings) -> CoreResult<Settings> {
    let driver = match settings.driver {
        ReadDriver::Pread => Driver::Pread,
        ReadDriver::IoUring => Driver::IoUring,
        ReadDriver::Auto => Driver::Auto,
    };
    Ok(Settings {
        driver,
        threads: settings.threads.clamp(1, 1024) as usize,
        buffered_block_bytes: bytes(settings.buffered_block_bytes, "block")?.max(4096),
        // The length of an io_uring read has 32 bits.
        direct_block_bytes: bytes(settings.direct_block_bytes, "block")?.clamp(4096, 1 << 30),
        queue_depth: settings.queue_depth.clamp(1, 4096),
    })
}

/// What stands in front of the engines of a transfer: nothing.
#[cfg(not(feature = "faults"))]
fn engines() -> Wrap {
    Box::new(|engine| engine)
}

#[cfg(feature = "faults")]
use crate::faults::engines;

fn js_summary(summary: Summary) -> TransferSummary {
    let column = |value: fn(&FileSummary) -> f64| Float64Array::new(summary.files.iter().map(value).collect());
    TransferSummary {
        buffered_bytes: column(|file| file.buffered_bytes as f64),
        cached_bytes: summary.files.iter().map(|file| file.cached_bytes.map(|bytes| bytes as f64)).collect(),
        direct_bytes: column(|file| file.direct_bytes as f64),
        direct_by_threads: Uint8Array::new(summary.files.iter().map(|file| u8::from(file.direct_by_threads)).collect()),
        fallback: summary.files.iter().map(|file| file.fallback.clone()).collect(),
        unkept: Uint8Array::new(summary.files.iter().map(|file| unkept_bits(file.unkept)).collect()),
        reads: summary.reads as f64,
    }
}

/// Bit 0: the inode number, bit 1: the time of modification.
pub fn unkept_bits(unkept: Unkept) -> u8 {
    u8::from(unkept.inode) | u8::from(unkept.time) << 1
}
