//! Opens a file, looks at what the page cache holds of it, and cuts its sequences into blocks for
//! the two lanes.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::publish::publish;
use crate::error::Result;
use crate::io::policy::{self, DirectAccess, Route};
use crate::io::queue::Hint;
use crate::io::residency::{self, Residency, Stretch};
use crate::io::settings::Driver;
use crate::io::shared::Shared;

pub fn scout(shared: &Arc<Shared>, file: usize) -> Result<()> {
    let state = &shared.files[file];
    let open = state.open()?;
    let settings = &shared.settings;
    let stretches = stretches_of(shared, file, open.buffered());
    // Where all is read through the cache nobody needs a second descriptor.
    let buffered_only = stretches.iter().all(|(_, residency)| matches!(residency, Residency::Cached | Residency::Partly));
    let mut direct_usable = false;
    if settings.driver != Driver::Pread && !buffered_only {
        match policy::direct_access(settings.driver, &state.spec, &open)? {
            DirectAccess::Any => direct_usable = true,
            DirectAccess::ThreadsOnly(system) => {
                direct_usable = true;
                let _ = state.unsound.set(system);
            }
            DirectAccess::Refused(why) => state.note_fallback(why),
        }
    }
    let (mut buffered, mut direct) = (Vec::new(), Vec::new());
    let mut at = 0;
    for sequence in shared.sequences(file) {
        let extent = shared.layout.extent(sequence);
        while stretches[at].0.end <= extent.start {
            at += 1;
        }
        for (stretch, residency) in stretches[at..].iter().take_while(|(stretch, _)| stretch.start < extent.end) {
            let range = stretch.start.max(extent.start)..stretch.end.min(extent.end);
            let mut blocks = Vec::new();
            let hint = match policy::route(settings.driver, *residency, direct_usable, range.end - range.start) {
                Route::Buffered(hint) => {
                    shared.layout.cut_buffered(sequence, range, settings.buffered_block_bytes, &mut blocks);
                    hint
                }
                Route::Direct => {
                    shared.layout.cut_direct(sequence, range, settings.direct_block_bytes, state.spec.align, &mut direct, &mut blocks);
                    Hint::Uncached
                }
            };
            buffered.extend(blocks.into_iter().map(|block| (block, hint)));
        }
    }
    publish(shared, file, buffered, direct);
    Ok(())
}

/// Residency over all sequences of a file; one stretch where it does not matter.
fn stretches_of(shared: &Shared, file: usize, fd: BorrowedFd<'_>) -> Vec<Stretch> {
    let sequences = shared.sequences(file);
    let range = shared.layout.extent(&sequences[0]).start..shared.layout.extent(&sequences[sequences.len() - 1]).end;
    match shared.settings.driver {
        Driver::IoUring => vec![(range, Residency::Cold)],
        Driver::Pread | Driver::Auto => residency::classify(fd, range),
    }
}
