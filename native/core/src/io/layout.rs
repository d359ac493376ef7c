//! From pieces to blocks: which bytes one read brings, and where they go.

use std::ops::Range;

use super::align::DirectAlign;
use super::settings::MAX_BOUNCE_BYTES;
use crate::sys::MAX_VECTORS;

/// Buffered blocks are cut where memory crosses a huge page, so that no two threads fault the same
/// one.
const HUGE_PAGE_BYTES: u64 = crate::vmm::HUGE_PAGE_BYTES as u64;

/// One contiguous stretch of a file that goes to one contiguous stretch of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub file: u32,
    pub offset: u64,
    pub length: u64,
    pub address: usize,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.length
    }

    fn address_at(&self, offset: u64) -> usize {
        self.address + (offset - self.offset) as usize
    }
}

/// File-contiguous bytes that one read brings. `pieces` are those that overlap it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub file: u32,
    pub offset: u64,
    pub length: u64,
    pub pieces: Range<usize>,
}

impl Block {
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// Everything that a transfer reads: pieces sorted by (file, offset), and the sequences of
/// file-contiguous pieces.
#[derive(Debug, Default)]
pub struct Layout {
    pub pieces: Vec<Piece>,
    /// Index ranges into `pieces`, in order; a sequence lies in one file.
    pub sequences: Vec<Range<usize>>,
    pub total_bytes: u64,
}

impl Layout {
    /// Pieces must be sorted by (file, offset) and not overlap; empty ones are dropped, neighbours
    /// in file and memory become one piece.
    pub fn new(pieces: impl Iterator<Item = Piece>) -> Self {
        let mut layout = Layout::default();
        for piece in pieces.filter(|piece| piece.length > 0) {
            layout.total_bytes += piece.length;
            if let Some(last) = layout.pieces.last_mut()
                && last.file == piece.file
                && last.end() == piece.offset
            {
                if last.address + last.length as usize == piece.address {
                    last.length += piece.length;
                    continue;
                }
                layout.pieces.push(piece);
                if let Some(sequence) = layout.sequences.last_mut() {
                    sequence.end += 1;
                }
                continue;
            }
            layout.pieces.push(piece);
            layout.sequences.push(layout.pieces.len() - 1..layout.pieces.len());
        }
        layout
    }

    /// File range of a sequence.
    pub fn extent(&self, sequence: &Range<usize>) -> Range<u64> {
        self.pieces[sequence.start].offset..self.pieces[sequence.end - 1].end()
    }

    fn block(&self, sequence: &Range<usize>, extent: Range<u64>) -> Block {
        let pieces = &self.pieces[sequence.clone()];
        let first = pieces.partition_point(|piece| piece.end() <= extent.start);
        let last = pieces.partition_point(|piece| piece.offset < extent.end);
        Block {
            file: pieces[0].file,
            offset: extent.start,
            length: extent.end - extent.start,
            pieces: sequence.start + first..sequence.start + last,
        }
    }

    /// Cuts `extent` of a sequence into blocks for buffered reads.
    pub fn cut_buffered(&self, sequence: &Range<usize>, extent: Range<u64>, max_bytes: u64, out: &mut Vec<Block>) {
        let mut position = extent.start;
        while position < extent.end {
            let limit = extent.end.min(position + max_bytes);
            let mut block = self.block(sequence, position..limit);
            let piece = self.pieces[block.pieces.start];
            if limit < extent.end && limit <= piece.end() {
                let past = piece.address_at(limit) as u64 % HUGE_PAGE_BYTES;
                if past < limit - position {
                    block.length -= past;
                }
            }
            if block.pieces.len() > MAX_VECTORS {
                block.pieces.end = block.pieces.start + MAX_VECTORS;
                block.length = self.pieces[block.pieces.end - 1].end() - position;
            }
            position = block.end();
            out.push(block);
        }
    }

    /// Cuts `extent` for direct I/O: blocks whose offset and length are multiples of
    /// `align.offset`, and the unaligned rest for buffered reads.
    pub fn cut_direct(
        &self,
        sequence: &Range<usize>,
        extent: Range<u64>,
        max_bytes: u64,
        align: DirectAlign,
        direct: &mut Vec<Block>,
        buffered: &mut Vec<Block>,
    ) {
        let begin = extent.start.next_multiple_of(align.offset);
        let end = extent.end - extent.end % align.offset;
        if begin >= end {
            self.cut_buffered(sequence, extent, max_bytes.max(1), buffered);
            return;
        }
        self.cut_buffered(sequence, extent.start..begin, max_bytes, buffered);
        self.cut_buffered(sequence, end..extent.end, max_bytes, buffered);
        let max_bytes = (max_bytes - max_bytes % align.offset).max(align.offset);
        let mut position = begin;
        while position < end {
            let stop = self.direct_stop(sequence, position, end, max_bytes, align);
            direct.push(self.block(sequence, position..stop));
            position = stop;
        }
    }

    fn direct_stop(&self, sequence: &Range<usize>, position: u64, end: u64, max_bytes: u64, align: DirectAlign) -> u64 {
        // Bounds at multiples of the block size: whatever lies below the file system likes reads
        // that start where its own blocks do.
        let limit = end.min((position + 1).next_multiple_of(max_bytes));
        let pieces = &self.pieces[sequence.clone()];
        let at = pieces.partition_point(|piece| piece.end() <= position);
        let piece = &pieces[at];
        if align.allows_address(piece.address_at(position)) {
            let last = piece.end() - piece.end() % align.offset;
            if last > position {
                return limit.min(last);
            }
        }
        // Through a bounce buffer, but no further than where a long piece can be read in place
        // again.
        let limit = limit.min(position + MAX_BOUNCE_BYTES.max(align.offset));
        let resume = pieces[at + 1..].iter().take_while(|next| next.offset < limit).find_map(|next| {
            let from = next.offset.next_multiple_of(align.offset);
            (next.length >= max_bytes && from < next.end() && align.allows_address(next.address_at(from))).then_some(from)
        });
        resume.map_or(limit, |from| limit.min(from))
    }

    /// The one address of a block whose bytes go to one stretch of memory.
    pub fn in_place(&self, block: &Block) -> Option<usize> {
        (block.pieces.len() == 1).then(|| self.pieces[block.pieces.start].address_at(block.offset))
    }

    /// Memory of the part of a block from `position` on, as vectors.
    pub fn vectors(&self, block: &Block, position: u64, out: &mut Vec<libc::iovec>) {
        out.clear();
        for piece in &self.pieces[block.pieces.clone()] {
            let begin = piece.offset.max(position);
            let end = piece.end().min(block.end());
            if begin < end {
                out.push(libc::iovec { iov_base: piece.address_at(begin) as *mut libc::c_void, iov_len: (end - begin) as usize });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, length: u64, address: usize) -> Piece {
        Piece { file: 0, offset, length, address }
    }

    const MIB: u64 = 1 << 20;
    const ALIGN: DirectAlign = DirectAlign { offset: 512, memory: 512 };

    #[test]
    fn neighbours_in_file_and_memory_become_one_segment() {
        let layout =
            Layout::new([piece(8, 10, 1000), piece(18, 0, 77), piece(18, 6, 1010), piece(24, 4, 5000), piece(40, 1, 5004)].into_iter());
        assert_eq!(layout.pieces, [piece(8, 16, 1000), piece(24, 4, 5000), piece(40, 1, 5004)]);
        assert_eq!(layout.sequences, [0..2, 2..3]);
        assert_eq!(layout.total_bytes, 21);
    }

    #[test]
    fn buffered_blocks_end_where_memory_enters_a_huge_page() {
        let base = (64 * MIB) as usize + 512;
        let layout = Layout::new([piece(512, 20 * MIB, base)].into_iter());
        let mut blocks = Vec::new();
        layout.cut_buffered(&layout.sequences[0], 512..512 + 20 * MIB, 8 * MIB, &mut blocks);
        assert_eq!(
            blocks.iter().map(|b| (b.offset, b.length)).collect::<Vec<_>>(),
            [(512, 8 * MIB - 512), (8 * MIB, 8 * MIB), (16 * MIB, 4 * MIB + 512)]
        );
    }

    #[test]
    fn direct_blocks_leave_unaligned_ends_to_buffered_reads() {
        let layout = Layout::new([piece(1000, 3000, 1000)].into_iter());
        let (mut direct, mut buffered) = (Vec::new(), Vec::new());
        layout.cut_direct(&layout.sequences[0], 1000..4000, 2 * MIB, ALIGN, &mut direct, &mut buffered);
        assert_eq!(direct.iter().map(|b| (b.offset, b.length)).collect::<Vec<_>>(), [(1024, 2560)]);
        assert_eq!(buffered.iter().map(|b| (b.offset, b.length)).collect::<Vec<_>>(), [(1000, 24), (3584, 416)]);
    }

    #[test]
    fn blocks_cover_every_byte_once_whatever_the_placement() {
        // A small deterministic generator; proptest would only add shrinking here.
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let mut offset = next(5000);
            let mut address = 1 << 24;
            let mut pieces = Vec::new();
            for _ in 0..1 + next(40) {
                let length = [next(10), next(700), next(9000), next(5 * MIB)][next(4) as usize];
                pieces.push(piece(offset, length, address));
                offset += length;
                address += length as usize + if next(2) == 0 { 0 } else { next(600) as usize };
                if next(5) == 0 {
                    offset += 1 + next(4096);
                }
            }
            let layout = Layout::new(pieces.into_iter());
            for sequence in &layout.sequences {
                let extent = layout.extent(sequence);
                let (mut direct, mut blocks) = (Vec::new(), Vec::new());
                layout.cut_direct(sequence, extent.clone(), 2 * MIB, ALIGN, &mut direct, &mut blocks);
                for block in &direct {
                    assert_eq!((block.offset % 512, block.length % 512), (0, 0));
                    assert!(block.length <= 2 * MIB);
                }
                blocks.extend(direct);
                blocks.sort_by_key(|block| block.offset);
                let mut position = extent.start;
                let mut vectors = Vec::new();
                for block in &blocks {
                    assert_eq!(block.offset, position);
                    layout.vectors(block, block.offset, &mut vectors);
                    assert_eq!(vectors.iter().map(|v| v.iov_len as u64).sum::<u64>(), block.length);
                    position = block.end();
                }
                assert_eq!(position, extent.end);
            }
        }
    }
}
