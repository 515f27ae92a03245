//! An allocator for programs that run worlds: [`WorldHeap`].
//!
//! A run allocates and frees some hundred thousand small blocks within milliseconds, on one thread. So inside a run the
//! world's thread takes them from lists by size, in memory at a fixed address that is there before the run begins; no
//! lock, no search, and where a block lies depends on nothing but the run. Everything else, other threads and programs
//! that run no world included, gets the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

/// The allocator. It does nothing unless a program installs it:
///
/// ```
/// #[global_allocator]
/// static HEAP: photofinish_sim::heap::WorldHeap = photofinish_sim::heap::WorldHeap;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct WorldHeap;

/// Where the blocks lie: far from where Linux puts programs, libraries, stacks and mappings.
const BASE: usize = 0x2000_0000_0000;
/// Address space for them, bytes.
const SIZE: usize = 16 << 30;
/// It is made writable in such steps, bytes: one huge page.
const STEP: usize = 2 << 20;
/// What most runs use up, bytes.
const WARM: usize = 3 * STEP;
/// Larger blocks are the system's, bytes.
const LARGEST: usize = 64 << 10;
/// 64 classes in steps of 16 bytes, then 4 for each doubling.
const CLASSES: usize = 64 + 6 * 4;
/// The alignment of every block, bytes.
const ALIGN: usize = 16;

/// Which list serves a size. `size` is 1 to [`LARGEST`].
#[inline]
const fn class(size: usize) -> usize {
    if size <= 1024 {
        return size.div_ceil(ALIGN) - 1;
    }
    let last = size - 1;
    let log = last.ilog2() as usize;
    64 + (log - 10) * 4 + ((last >> (log - 2)) & 3)
}

/// How large the blocks of a list are.
const fn capacity(class: usize) -> usize {
    match class.checked_sub(64) {
        None => (class + 1) * ALIGN,
        Some(rest) => (5 + rest % 4) << (8 + rest / 4),
    }
}

/// A block that is free: its first bytes hold the next one of its list.
struct Free {
    next: Option<NonNull<Free>>,
}

struct Slabs {
    /// The first byte that was never given out.
    next: usize,
    /// The first byte that is not writable yet.
    writable: usize,
    end: usize,
    free: [Option<NonNull<Free>>; CLASSES],
}

impl Slabs {
    const fn new() -> Slabs {
        Slabs { next: 0, writable: 0, end: 0, free: [None; CLASSES] }
    }

    #[inline]
    fn take(&mut self, class: usize) -> *mut u8 {
        if let Some(block) = self.free[class] {
            // SAFETY: what is in a list was put there by `give`, which wrote its `next`; nobody else has it.
            self.free[class] = unsafe { block.as_ref() }.next;
            return block.as_ptr().cast();
        }
        let (start, behind) = (self.next, self.next + capacity(class));
        if behind > self.writable && !self.grow(behind) {
            return ptr::null_mut();
        }
        self.next = behind;
        ptr::with_exposed_provenance_mut(start)
    }

    #[cold]
    fn grow(&mut self, behind: usize) -> bool {
        let until = behind.next_multiple_of(STEP);
        let (start, length) = (ptr::with_exposed_provenance_mut::<c_void>(self.writable), until - self.writable);
        // SAFETY: the range lies in the address space that `enter` reserved, and holds nothing yet.
        let grown =
            until <= self.end && unsafe { libc::mprotect(start, length, libc::PROT_READ | libc::PROT_WRITE) } == 0;
        if grown {
            self.writable = until;
        }
        grown
    }

    /// # Safety
    /// The block came from `take` of this class, and nobody uses it any more.
    #[inline]
    unsafe fn give(&mut self, block: *mut u8, class: usize) {
        let block = block.cast::<Free>();
        // SAFETY: the block is ours again, aligned, and not smaller than a `Free`.
        unsafe { block.write(Free { next: self.free[class] }) };
        self.free[class] = NonNull::new(block);
    }
}

/// Only the thread whose [`MINE`] is set touches what is inside.
struct Owned(UnsafeCell<Slabs>);
// SAFETY: see above; there is one such thread in a process, since `enter` is called once in it.
unsafe impl Sync for Owned {}

static SLABS: Owned = Owned(UnsafeCell::new(Slabs::new()));
static INSTALLED: AtomicBool = AtomicBool::new(false);
static ENTERED: AtomicBool = AtomicBool::new(false);
thread_local!(static MINE: Cell<bool> = const { Cell::new(false) });

/// Gives the calling thread the process's blocks, if the program has installed the allocator. `false`: it has not, or the
/// address space was refused.
pub(crate) fn enter() -> bool {
    if !INSTALLED.load(Ordering::Relaxed) || ENTERED.swap(true, Ordering::Relaxed) {
        return false;
    }
    let base = ptr::without_provenance_mut::<c_void>(BASE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping where there is none; advice on it changes nothing. No other thread knows of the slabs yet.
    unsafe {
        let mapped = libc::mmap(base, SIZE, libc::PROT_NONE, flags, -1, 0);
        if mapped == libc::MAP_FAILED {
            return false;
        }
        if mapped != base {
            // A kernel that does not know the flag took the address for a wish.
            libc::munmap(mapped, SIZE);
            return false;
        }
        libc::madvise(mapped, SIZE, libc::MADV_HUGEPAGE);
        let slabs = &mut *SLABS.0.get();
        let start = mapped.expose_provenance();
        *slabs = Slabs { next: start, writable: start, end: start + SIZE, free: [None; CLASSES] };
        if !slabs.grow(start + WARM) {
            return false;
        }
        libc::madvise(mapped, WARM, libc::MADV_POPULATE_WRITE);
    }
    MINE.set(true);
    true
}

/// In a process that was forked from a run: gives it huge pages of its own with the same blocks in them. Most blocks will
/// be written to; copied page by page, in faults, they would cost more, and be slower afterwards.
pub(crate) fn own() {
    let Some(slabs) = mine() else { return };
    // SAFETY: this thread's alone, and not borrowed.
    let (used, length) = unsafe { ((*slabs).next - BASE, (*slabs).writable - BASE) };
    // SAFETY: fresh memory, one huge page longer than needed, so that a part of it is aligned to one. It gets the bytes of
    // all blocks that were ever given out, and takes the place of the old memory in one step.
    unsafe {
        let (private, prot) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        let fresh = libc::mmap(ptr::null_mut(), length + STEP, prot, private, -1, 0);
        if fresh == libc::MAP_FAILED {
            return;
        }
        let aligned = (fresh as usize).next_multiple_of(STEP) as *mut c_void;
        libc::madvise(aligned, length, libc::MADV_HUGEPAGE);
        let base = ptr::with_exposed_provenance_mut::<c_void>(BASE);
        ptr::copy_nonoverlapping(base.cast::<u8>().cast_const(), aligned.cast::<u8>(), used);
        libc::mremap(aligned, length, length, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, base);
    }
}

/// The slabs, if they are this thread's. The thread may be past its thread-local variables.
#[inline]
fn mine() -> Option<*mut Slabs> {
    MINE.try_with(Cell::get).unwrap_or(false).then(|| SLABS.0.get())
}

#[inline]
fn is_block(at: *mut u8) -> bool {
    at.addr().wrapping_sub(BASE) < SIZE
}

// SAFETY: a block is from `take`, which gives each out once until `give`, large and aligned enough for its layout, or it is
// the system's; its address tells which. Nothing here unwinds or allocates.
unsafe impl GlobalAlloc for WorldHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() <= LARGEST
            && layout.align() <= ALIGN
            && let Some(slabs) = mine()
        {
            // SAFETY: this thread's alone, and not borrowed: `take` calls nothing that allocates.
            return unsafe { (*slabs).take(class(layout.size())) };
        }
        INSTALLED.store(true, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_block(block) {
            // SAFETY: not from the slabs, so it is the system's; the rest is the caller's promise.
            return unsafe { System.dealloc(block, layout) };
        }
        // What another thread frees is lost until the run ends: there are few other threads, and runs are short.
        if let Some(slabs) = mine() {
            // SAFETY: as above; the layout is the one that the block was made for.
            unsafe { (*slabs).give(block, class(layout.size())) };
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST || layout.align() > ALIGN || mine().is_none() {
            INSTALLED.store(true, Ordering::Relaxed);
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's promise; a block is as large as its layout says.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_block(block) {
            // SAFETY: it is the system's; the rest is the caller's promise.
            return unsafe { System.realloc(block, layout, size) };
        }
        if size <= LARGEST && class(size) == class(layout.size()) {
            return block;
        }
        // SAFETY: the caller promises that `size` is a valid size of this alignment. Both blocks are at least as large
        // as what is copied, and do not overlap.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_fits_its_class_and_no_smaller_one() {
        for size in 1..=LARGEST {
            let class = class(size);
            assert!(class < CLASSES, "{size}");
            assert!(capacity(class) >= size, "{size}: {}", capacity(class));
            assert!(class == 0 || capacity(class - 1) < size, "{size}");
            assert_eq!(capacity(class) % ALIGN, 0, "{size}");
        }
        assert_eq!(capacity(CLASSES - 1), LARGEST);
    }

    fn slabs(length: usize) -> (Slabs, Vec<u8>) {
        let memory = vec![0u8; length];
        let start = memory.as_ptr().expose_provenance().next_multiple_of(ALIGN);
        let end = memory.as_ptr().addr() + length;
        (Slabs { next: start, writable: end, end, free: [None; CLASSES] }, memory)
    }

    #[test]
    fn a_block_is_given_out_once_until_it_comes_back_and_the_last_one_first() {
        let (mut slabs, _memory) = slabs(1 << 12);
        let [a, b, c] = [0; 3].map(|_| slabs.take(class(40)));
        assert_eq!((b.addr() - a.addr(), c.addr() - b.addr()), (48, 48));
        // SAFETY: both came from `take` of this class, and are not used.
        unsafe {
            slabs.give(a, class(40));
            slabs.give(b, class(40));
        }
        assert_ne!(slabs.take(class(30)), b, "another size has another list");
        assert_eq!([0; 3].map(|_| slabs.take(class(48))).map(|p| p == a || p == b), [true, true, false]);
    }

    #[test]
    fn what_does_not_fit_any_more_is_null_and_nothing_is_lost() {
        let (mut slabs, _memory) = slabs(1 << 10);
        assert!(slabs.take(class(LARGEST)).is_null());
        assert!(!slabs.take(class(16)).is_null());
    }

    #[test]
    fn without_a_run_everything_is_the_systems() {
        let heap = WorldHeap;
        let layout = Layout::from_size_align(100, 8).expect("a layout");
        // SAFETY: the block is written within its size and freed once, with its last layout.
        unsafe {
            let block = heap.alloc_zeroed(layout);
            assert!(!is_block(block));
            assert_eq!(std::slice::from_raw_parts(block, 100), [0; 100]);
            block.write(7);
            let block = heap.realloc(block, layout, 5000);
            assert_eq!(block.read(), 7);
            heap.dealloc(block, Layout::from_size_align(5000, 8).expect("a layout"));
        }
    }
}
