//! Functions of libc that our symbols hide.
use libc::c_void;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A function of libc, looked up at its first use.
pub(super) struct Hidden {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Hidden {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Hidden { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }
    /// Null if there is none, as in a program that is linked statically.
    pub(super) fn address(&self) -> *mut c_void {
        let found = self.found.load(Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name is a valid C string.
        let f = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(f, Relaxed);
        f
    }
    pub(super) fn must(&self) -> *mut c_void {
        let f = self.address();
        assert!(!f.is_null(), "libc has {:?} (is the program linked statically?)", self.name);
        f
    }
}
