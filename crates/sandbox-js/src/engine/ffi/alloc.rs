//! The allocator of a run's runtime: it counts, and it refuses once a bound is passed.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::ptr;
use std::sync::Arc;

use rquickjs::Runtime;
use rquickjs::allocator::Allocator;

use crate::engine::guard::Guard;

/// What the engine may store in a block has at most this alignment, and each block is preceded by its size.
const ALIGN: usize = 8;
const HEADER: usize = ALIGN;

/// A runtime whose memory is counted by `guard`.
pub(in crate::engine) fn runtime(guard: &Arc<Guard>) -> rquickjs::Result<Runtime> {
    Runtime::new_with_alloc(Counting { guard: Arc::clone(guard) })
}

struct Counting {
    guard: Arc<Guard>,
}

/// The layout of a block for `size` bytes of the engine, or `None` if there is no such layout.
fn layout(size: usize) -> Option<Layout> {
    let padded = size.checked_next_multiple_of(ALIGN)?.checked_add(HEADER)?;
    Layout::from_size_align(padded, ALIGN).ok()
}

// SAFETY: every block is `HEADER` bytes longer than asked for, rounded up, and aligned to 8; its first bytes hold the
// size of the usable part, from which `dealloc` and `realloc` get the layout back. Refusals are null pointers.
unsafe impl Allocator for Counting {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        let Some(layout) = layout(size) else { return ptr::null_mut() };
        if !self.guard.take(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the layout is not empty, as it includes the header.
        unsafe { finish(alloc(layout), layout, &self.guard) }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let Some(layout) = count.checked_mul(size).and_then(layout) else { return ptr::null_mut() };
        if !self.guard.take(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: as in `alloc`.
        unsafe { finish(alloc_zeroed(layout), layout, &self.guard) }
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller gives a block of this allocator.
        unsafe {
            let (block, layout) = block_of(ptr);
            self.guard.give_back(layout.size());
            dealloc(block, layout);
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        let Some(new) = layout(new_size) else { return ptr::null_mut() };
        // SAFETY: the caller gives a block of this allocator; if there is no new block the old one stays as it is.
        unsafe {
            let (block, old) = block_of(ptr);
            let grows = new.size().saturating_sub(old.size());
            if grows > 0 && !self.guard.take(grows) {
                return ptr::null_mut();
            }
            let moved = realloc(block, old, new.size());
            if moved.is_null() {
                self.guard.give_back(grows);
                return ptr::null_mut();
            }
            self.guard.give_back(old.size().saturating_sub(new.size()));
            moved.cast::<usize>().write(new.size() - HEADER);
            moved.add(HEADER)
        }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller gives a block of this allocator, whose header holds its size.
        unsafe { ptr.sub(HEADER).cast::<usize>().read() }
    }
}

/// Writes the header of a new block.
///
/// # Safety
/// `block` is null or a new block of `layout`.
unsafe fn finish(block: *mut u8, layout: Layout, guard: &Guard) -> *mut u8 {
    if block.is_null() {
        guard.give_back(layout.size());
        return block;
    }
    // SAFETY: the block begins with room for the header, aligned for a usize.
    unsafe {
        block.cast::<usize>().write(layout.size() - HEADER);
        block.add(HEADER)
    }
}

/// The whole block of a pointer that was handed out, and its layout.
///
/// # Safety
/// `ptr` was handed out by this allocator and not given back.
unsafe fn block_of(ptr: *mut u8) -> (*mut u8, Layout) {
    // SAFETY: the header precedes the pointer, and its size once made a valid layout.
    unsafe {
        let block = ptr.sub(HEADER);
        let size = block.cast::<usize>().read() + HEADER;
        (block, Layout::from_size_align_unchecked(size, ALIGN))
    }
}
