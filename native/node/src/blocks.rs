//! Binding of `mx_core::io::{align, layout, settings}`: what direct reads keep to, and the blocks
//! that pieces would be cut into.

use mx_core::io::align::DirectAlign;
use mx_core::io::layout::Layout;
use mx_core::io::policy::{Route, route};
use mx_core::io::residency::Residency;
use mx_core::io::settings::{DIRECT_THREADS, MAX_BOUNCE_BYTES, MAX_BOUNCES, MIN_DIRECT_BYTES};
use napi::bindgen_prelude::Uint32Array;
use napi_derive::napi;

use crate::failure::thrown;
use crate::transfer::{TransferFiles, TransferPieces, TransferSettings, checked_pieces, core_settings, file_specs};

/// Bytes, powers of two, one entry per file.
#[napi(object, object_from_js = false)]
pub struct DirectAlignColumns {
    /// Of file offsets and lengths.
    pub offset: Uint32Array,
    /// Of addresses.
    pub memory: Uint32Array,
}

/// What direct reads of each file keep to, from what statx told: 4096 where it told nothing, and of
/// offsets at least.
#[napi]
pub fn direct_align(dio_offset_align: Uint32Array, dio_mem_align: Uint32Array) -> DirectAlignColumns {
    let aligns = || dio_offset_align.iter().zip(dio_mem_align.iter()).map(|(offset, memory)| DirectAlign::new(*offset, *memory));
    let column = |of: fn(DirectAlign) -> u64| Uint32Array::new(aligns().map(|align| of(align) as u32).collect());
    DirectAlignColumns { offset: column(|align| align.offset), memory: column(|align| align.memory) }
}

/// What is the same for all transfers, for the plan to count.
#[napi(object, object_from_js = false)]
pub struct LaneLimits {
    /// Shorter uncached ranges are read through the page cache.
    pub min_direct_bytes: f64,
    /// Threads that read directly where no ring can be used.
    pub direct_threads: u32,
    /// Bounce buffers in flight, and the length of each in bytes.
    pub max_bounces: u32,
    pub max_bounce_bytes: f64,
}

#[napi]
pub fn lane_limits() -> LaneLimits {
    LaneLimits {
        min_direct_bytes: MIN_DIRECT_BYTES as f64,
        direct_threads: DIRECT_THREADS as u32,
        max_bounces: MAX_BOUNCES as u32,
        max_bounce_bytes: MAX_BOUNCE_BYTES as f64,
    }
}

/// The blocks of a transfer, were all of it read one way.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct BlockCounts {
    /// Buffered.
    pub buffered: f64,
    /// Directly; beside them blocks that are buffered still: unaligned ends, and where the driver
    /// is `auto` short ranges.
    pub direct: f64,
    pub rest: f64,
    /// Bytes of direct blocks that go through a bounce buffer.
    pub bounced_bytes: f64,
}

/// Cuts the pieces as a transfer would, and counts. Addresses may begin at 0: only their place in a
/// huge page matters.
#[napi]
pub fn count_blocks(files: TransferFiles, pieces: TransferPieces, settings: TransferSettings) -> napi::Result<BlockCounts> {
    let files = file_specs(&files).map_err(thrown)?;
    let layout = Layout::new(checked_pieces(&pieces, &files).map_err(thrown)?.into_iter());
    let settings = core_settings(&settings).map_err(thrown)?;
    let mut counts = BlockCounts::default();
    let (mut buffered, mut direct, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for sequence in &layout.sequences {
        let extent = layout.extent(sequence);
        let align = files[layout.pieces[sequence.start].file as usize].align;
        layout.cut_buffered(sequence, extent.clone(), settings.buffered_block_bytes, &mut buffered);
        match route(settings.driver, Residency::Cold, true, extent.end - extent.start) {
            Route::Buffered(_) => layout.cut_buffered(sequence, extent, settings.buffered_block_bytes, &mut rest),
            Route::Direct => layout.cut_direct(sequence, extent, settings.direct_block_bytes, align, &mut direct, &mut rest),
        }
        let bounced = direct.iter().filter(|block| !layout.in_place(block).is_some_and(|address| align.allows_address(address)));
        counts.bounced_bytes += bounced.map(|block| block.length).sum::<u64>() as f64;
        for (count, blocks) in [(&mut counts.buffered, &mut buffered), (&mut counts.direct, &mut direct), (&mut counts.rest, &mut rest)] {
            *count += blocks.drain(..).len() as f64;
        }
    }
    Ok(counts)
}
