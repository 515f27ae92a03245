//! Page tables of a run, filled before it begins.
//!
//! A run lives for milliseconds in a fresh process, so every page that it touches is a fault: measured, 1 230 for its
//! heap and 190 for its code, a fifth of its time. Each function here asks the kernel for many pages in one call. All of
//! them are advice: where one is refused, the run takes its faults as before. None changes where anything lies, since
//! addresses must agree between two zygotes.

use std::ffi::{c_int, c_void};

/// Heap that most runs use up, bytes.
const HEAP: usize = 6 << 20;
/// Programs larger than this (unoptimised ones) are left to their faults: filling their tables would cost more.
const CODE: usize = 32 << 20;
const PAGE: usize = 4096;

/// Grows the heap of the calling thread in one step, in memory that is there already, on huge pages where possible.
///
/// Only where that heap is the thread's own. A thread of a forked test program may have been given the main thread's,
/// whose state depends on how far the test runner's threads had come: there, nothing may move.
pub(super) fn heap() {
    // SAFETY: each block is ours from its malloc to its free; advice on it changes no byte that anybody has written. The
    // parameters make the allocator take the block from the heap, and keep it for what comes next.
    unsafe {
        let probe = libc::malloc(1);
        let own = probe as usize >= libc::sbrk(0) as usize;
        libc::free(probe);
        if !own {
            return;
        }
        #[cfg(target_env = "gnu")]
        for (parameter, value) in [(libc::M_TRIM_THRESHOLD, 1 << 30), (libc::M_MMAP_THRESHOLD, 32 << 20)] {
            libc::mallopt(parameter, value);
        }
        let block = libc::malloc(HEAP);
        if !block.is_null() {
            let start = (block as usize).next_multiple_of(PAGE);
            let length = (block as usize + HEAP - start) / PAGE * PAGE;
            libc::madvise(start as *mut c_void, length, libc::MADV_HUGEPAGE);
            libc::madvise(start as *mut c_void, length, libc::MADV_POPULATE_WRITE);
        }
        libc::free(block);
    }
}

/// Fills the tables for the program's own code and constants: after a fork they are empty for what comes from a file.
pub(super) fn code() {
    // SAFETY: the callback matches the expected signature, takes no memory, and has no state.
    unsafe { libc::dl_iterate_phdr(Some(program), std::ptr::null_mut()) };
}

/// For the first object, the program itself; returning 1 ends the iteration.
unsafe extern "C" fn program(info: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    // SAFETY: the loader's description of the object, valid during the callback; its segments are mapped as it says.
    unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let constant = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0;
        if headers.iter().filter(constant).map(|h| h.p_memsz as usize).sum::<usize>() <= CODE {
            for h in headers.iter().filter(constant) {
                let start = (info.dlpi_addr as usize + h.p_vaddr as usize) / PAGE * PAGE;
                let end = info.dlpi_addr as usize + h.p_vaddr as usize + h.p_memsz as usize;
                libc::madvise(start as *mut c_void, end - start, libc::MADV_POPULATE_READ);
            }
        }
    }
    1
}
