//! Thread creation: noticed, C libraries' included. Refused unless the world allows foreign threads.
use crate::state::{self, Shared, Trouble};
use libc::{c_int, c_void};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

type Main = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Main, *mut c_void) -> c_int;

thread_local!(static ORDINAL: Cell<u32> = const { Cell::new(0) });
/// Number of the calling foreign thread in its world, from 1.
pub(super) fn ordinal() -> u32 {
    ORDINAL.get()
}

/// What a new foreign thread needs to know.
struct Start {
    main: Main,
    arg: *mut c_void,
    world: &'static Shared,
    ordinal: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    main: Main,
    arg: *mut c_void,
) -> c_int {
    let Some((world, _)) = state::live() else {
        // SAFETY: C's contract of pthread_create holds for the caller.
        return unsafe { real()(thread, attr, main, arg) };
    };
    if !world.foreign {
        let backtrace = crate::backtrace::creator();
        state::report(Trouble::ForeignThread { backtrace });
        state::interrupt();
        return libc::EAGAIN;
    }
    let before = world.threads.registered();
    let start = Box::into_raw(Box::new(Start { main, arg, world, ordinal: world.threads.next_ordinal() }));
    // SAFETY: C's contract holds for the caller's arguments; `start` is a valid box that `begin` takes over.
    let r = unsafe { real()(thread, attr, begin, start.cast()) };
    if r == 0 {
        world.threads.await_registration(before);
        world.threads.settle();
    } else {
        // SAFETY: no thread was started, so the box is still ours.
        drop(unsafe { Box::from_raw(start) });
    }
    r
}

unsafe extern "C-unwind" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` above passed a box of this type, once.
    let Start { main, arg, world, ordinal } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    ORDINAL.set(ordinal);
    world.threads.register();
    state::adopt(world, ordinal.into());
    // SAFETY: the function and the argument that the creator passed to pthread_create.
    unsafe { main(arg) }
}

/// libc's own pthread_create.
fn real() -> Create {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut f = REAL.load(Relaxed);
    if f.is_null() {
        // SAFETY: the name is a valid C string.
        f = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        assert!(!f.is_null(), "libc has pthread_create (is the program linked statically?)");
        REAL.store(f, Relaxed);
    }
    // SAFETY: the address of libc's pthread_create, whose type this is.
    unsafe { std::mem::transmute::<*mut c_void, Create>(f) }
}
