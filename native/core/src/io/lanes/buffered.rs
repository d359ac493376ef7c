//! The buffered lane: threads that scout files, and copy blocks out of the page cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ordinary::Reader;
use super::publish::publish;
use super::scout::scout;
use crate::error::{Error, Fact, Result};
use crate::io::layout::Block;
use crate::io::policy;
use crate::io::queue::{Hint, PutBack, Work};
use crate::io::residency;
use crate::io::shared::Shared;

/// A file is tried again after this time where only other loads can give descriptors back.
const STARVED_PAUSE: Duration = Duration::from_millis(10);

/// Body of a buffered thread.
pub fn run(shared: &Arc<Shared>) {
    let mut reader = Reader::new(shared);
    loop {
        let outcome = match shared.queue.next_buffered() {
            Work::Exit => return,
            Work::Scout(file) => match scout(shared, file) {
                Err(error) if lacks_descriptors(&error) => put_back(shared, file, error),
                outcome => outcome,
            },
            Work::Buffered(block, Hint::Unknown) => find_out(shared, &mut reader, &block),
            Work::Buffered(block, hint) => read_block(shared, &mut reader, &block, hint),
        };
        if let Err(error) = outcome {
            shared.conclude(Err(error));
        }
    }
}

fn lacks_descriptors(error: &Error) -> bool {
    let none_left = [Fact::from("EMFILE"), Fact::from("ENFILE")];
    error.facts.iter().any(|(name, value)| *name == "errno" && none_left.contains(value))
}

fn put_back(shared: &Shared, file: usize, error: Error) -> Result<()> {
    shared.files[file].close();
    match shared.queue.put_back(file) {
        PutBack::Waits => {}
        PutBack::Starved => std::thread::sleep(STARVED_PAUSE),
        PutBack::GivenUp => return Err(error),
    }
    Ok(())
}

fn read_block(shared: &Shared, reader: &mut Reader, block: &Block, hint: Hint) -> Result<()> {
    if !reader.read(shared, block, block.offset)? {
        return Ok(());
    }
    let state = shared.file_of(block);
    match hint {
        Hint::Cached => {
            state.cached_bytes.fetch_add(block.length, Ordering::Relaxed);
        }
        Hint::Uncached => {}
        Hint::Unasked | Hint::Unknown => state.cached_known.store(false, Ordering::Relaxed),
    }
    shared.buffered_done(block)
}

/// Reads what the page cache holds of a block, and sends the rest to the direct lane.
fn find_out(shared: &Arc<Shared>, reader: &mut Reader, block: &Block) -> Result<()> {
    let state = shared.file_of(block);
    let file = block.file as usize;
    let Some(open) = state.opened() else { return Ok(()) };
    // A read that refuses to wait starts readahead where it finds nothing, as much as was asked
    // for: so the question is asked of single bytes first.
    let ends = [block.offset, block.end() - 1].map(|offset| residency::is_cached(open.buffered(), offset));
    if ends[0].is_none() {
        state.note_fallback(policy::CACHE_NOT_TOLD);
        publish(shared, file, Vec::new(), Vec::new());
        return read_block(shared, reader, block, Hint::Unasked);
    }
    let position = if ends == [Some(true); 2] { reader.read_cached(shared, block)? } else { block.offset };
    let (mut direct, mut buffered) = (Vec::new(), Vec::new());
    if position < block.end() {
        let block_bytes = shared.settings.direct_block_bytes;
        shared.layout.cut_direct(
            shared.sequence_of(block),
            position..block.end(),
            block_bytes,
            state.spec.align,
            &mut direct,
            &mut buffered,
        );
    }
    publish(shared, file, buffered.into_iter().map(|block| (block, Hint::Uncached)).collect(), direct);
    state.cached_bytes.fetch_add(position - block.offset, Ordering::Relaxed);
    shared.buffered_done(&Block { length: position - block.offset, ..block.clone() })
}
