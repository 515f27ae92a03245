//! The program's code and constants in a zygote's own memory, which its children inherit.
//!
//! A run lives for milliseconds and executes most of its code a few times. After a fork its page tables know nothing of
//! what is mapped from a file, and pages of 4 KiB exhaust the processor's translation cache. The zygote copies code and
//! constants once into memory of its own, on huge pages where possible, and puts the copy where the original was. What
//! the code does and where it lies stays the same. Nothing here allocates: where a run's blocks lie must not depend on it.

use std::ffi::{c_int, c_void};

/// Size of a huge page on x86-64 and, with 4 KiB base pages, on aarch64.
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;
/// Larger programs (unoptimised ones) stay as they are: a zygote should be small.
const LARGEST: usize = 32 << 20;

/// Moves the code; where that is refused, everything stays as it was. To be called in the process's only thread.
pub(super) fn inherit() {
    // SAFETY: the callback matches the expected signature, takes no memory, and has no state.
    unsafe { libc::dl_iterate_phdr(Some(program), std::ptr::null_mut()) };
}

/// For the first object, the program itself; returning 1 ends the iteration.
unsafe extern "C" fn program(info: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    // SAFETY: the loader's description of the object, valid during the callback; its segments are mapped as it says, in
    // whole pages, and nothing writes to code.
    unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let constant = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0;
        if headers.iter().filter(constant).map(|h| h.p_memsz as usize).sum::<usize>() > LARGEST {
            return 1;
        }
        for header in headers.iter().filter(constant) {
            let start = info.dlpi_addr as usize + header.p_vaddr as usize;
            let end = (start + header.p_memsz as usize).next_multiple_of(PAGE);
            let executable = if header.p_flags & libc::PF_X != 0 { libc::PROT_EXEC } else { 0 };
            replace(start / PAGE * PAGE, end - start / PAGE * PAGE, libc::PROT_READ | executable);
        }
    }
    1
}

/// Puts a copy of `length` bytes at `start` in their place.
///
/// # Safety
/// The range must be whole pages, mapped, readable and unchanging.
unsafe fn replace(start: usize, length: usize, protection: c_int) {
    let (anonymous, writable) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: fresh memory of our own, one huge page longer than needed, so that the copy can begin at the same offset in
    // a huge page as the original; the copy stays within it; the mremap replaces the code by the same bytes in one step.
    unsafe {
        let fresh = libc::mmap(std::ptr::null_mut(), length + HUGE, writable, anonymous, -1, 0);
        if fresh == libc::MAP_FAILED {
            return;
        }
        let copy = fresh as usize + (start % HUGE + HUGE - fresh as usize % HUGE) % HUGE;
        let at = copy as *mut c_void;
        libc::madvise(at, length, libc::MADV_HUGEPAGE);
        std::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, length);
        let moved = libc::mprotect(at, length, protection) == 0
            && libc::mremap(at, length, length, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, start as *mut c_void)
                != libc::MAP_FAILED;
        if moved {
            // What is left of the fresh memory: before the copy and behind it.
            libc::munmap(fresh, copy - fresh as usize);
            libc::munmap((copy + length) as *mut c_void, fresh as usize + HUGE - copy);
        } else {
            libc::munmap(fresh, length + HUGE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_on_after_it_was_moved() {
        // In a process of its own: this one has other threads.
        // SAFETY: the child calls no more than the code under test, which takes no lock but the loader's, and leaves by
        // _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let here = inherit as fn() as *const u8;
            // SAFETY: code is mapped and readable, before and after.
            let before = unsafe { std::slice::from_raw_parts(here, 64) };
            let before: [u8; 64] = before.try_into().unwrap_or([0; 64]);
            inherit();
            // SAFETY: as above.
            let same = unsafe { std::slice::from_raw_parts(here, 64) } == before;
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if same { 0 } else { 1 }) }
        }
        let mut status = 0;
        // SAFETY: waits for the child just forked.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0);
    }
}
