//! The program's code on huge pages, shared by all runs of a zygote.
//!
//! A run lives for milliseconds and executes most of its code once or twice, so it pays above all for finding that
//! code: a child's page tables know nothing of file-backed code after a fork, and 4 KiB pages exhaust the
//! instruction TLB. The zygote copies its code once into memory of its own, on huge pages, and puts the copy where the
//! original was; children inherit it, page tables included. What the code does and where it lies stays the same.

use std::ffi::c_void;
use std::fs;

/// Size of a huge page on x86-64 and, with 4 KiB base pages, on aarch64.
const HUGE: usize = 2 << 20;

/// Moves the code; where that is refused, everything stays as it was.
pub(super) fn move_to_huge_pages() {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    let here = move_to_huge_pages as fn() as usize;
    let Some((start, end)) = maps.lines().filter_map(code).find(|(start, end)| (*start..*end).contains(&here)) else {
        return;
    };
    let (start, end) = (start.next_multiple_of(HUGE), end / HUGE * HUGE);
    if start < end {
        // SAFETY: the range is mapped, readable and executable, and nothing writes to it.
        unsafe { replace(start, end - start) };
    }
}

/// First and last address of a mapping of executable, unwritable code.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, mode) = (words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    mode.starts_with("r-x").then_some((address(start)?, address(end)?))
}

/// Puts a copy of `length` bytes of code at `start` in their place.
///
/// # Safety
/// The range must be mapped, readable and unchanging, and begin and end on a huge page's boundary.
unsafe fn replace(start: usize, length: usize) {
    let (anonymous, readable) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: fresh memory of our own, one huge page longer than needed so that an aligned part can be chosen; the
    // copy stays within it; the last call replaces the code by the same bytes in one step, in the only thread.
    unsafe {
        let fresh = libc::mmap(std::ptr::null_mut(), length + HUGE, readable, anonymous, -1, 0);
        if fresh == libc::MAP_FAILED {
            return;
        }
        let copy = (fresh as usize).next_multiple_of(HUGE);
        let at = copy as *mut c_void;
        if libc::madvise(at, length, libc::MADV_HUGEPAGE) == 0 {
            std::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, length);
            let executable = libc::PROT_READ | libc::PROT_EXEC;
            let moved = libc::mprotect(at, length, executable) == 0
                && libc::mremap(at, length, length, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, start as *mut c_void)
                    != libc::MAP_FAILED;
            if moved {
                // What is left of the fresh memory: before the copy and behind it.
                libc::munmap(fresh, copy - fresh as usize);
                libc::munmap((copy + length) as *mut c_void, fresh as usize + HUGE - copy);
                return;
            }
        }
        libc::munmap(fresh, length + HUGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_can_be_executed_and_not_written() {
        for (line, range) in [
            ("555555969000-555556779000 r-xp 00414000 fe:00 1234  /bin/x", Some((0x5555_5596_9000, 0x5555_5677_9000))),
            ("555555554000-555555969000 r--p 00000000 fe:00 1234  /bin/x", None),
            ("7ffff7fc0000-7ffff7fc1000 rwxp 00000000 00:00 0", None),
            ("garbage", None),
            ("", None),
        ] {
            assert_eq!(code(line), range, "{line}");
        }
    }

    #[test]
    fn code_runs_on_after_it_was_moved() {
        // In a process of its own: this one has other threads.
        // SAFETY: the child calls no more than the code under test, which takes no lock that another thread may hold
        // but the allocator's, and leaves by _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            move_to_huge_pages();
            let again = code("1000-2000 r-xp") == Some((0x1000, 0x2000));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if again { 0 } else { 1 }) }
        }
        let mut status = 0;
        // SAFETY: waits for the child just forked.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0);
    }
}
