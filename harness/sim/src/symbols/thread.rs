//! Thread creation: noticed, C libraries' included. Refused unless the world allows foreign threads.
use crate::state::{self, Role, Shared, Trouble};
use crate::symbols::hidden::Hidden;
use libc::{c_int, c_void};
use std::cell::Cell;

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
        if state::current_host().is_none() {
            // The harness's own: it does not run while hosts do, unless its author wants it to.
            // SAFETY: C's contract of pthread_create holds for the caller.
            return unsafe { real()(thread, attr, main, arg) };
        }
        let backtrace = crate::backtrace::creator();
        state::report(Trouble::ForeignThread { backtrace });
        state::interrupt();
        return libc::EAGAIN;
    }
    let before = world.threads.registered();
    let start = Box::into_raw(Box::new(Start { main, arg, world, ordinal: world.threads.next_ordinal() }));
    let turn = world.threads.turn();
    // SAFETY: C's contract holds for the caller's arguments; `start` is a valid box that `begin` takes over.
    let r = unsafe { real()(thread, attr, begin, start.cast()) };
    if r == 0 {
        world.threads.await_registration(before);
        turn.settle();
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

/// Waits for a thread's end. libc sleeps on a word that the kernel clears, out of our sight: on the world's thread the
/// wait is decided here instead, as any other.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(thread: libc::pthread_t, value: *mut *mut c_void) -> c_int {
    let join = |symbol: &Hidden| {
        // SAFETY: the address of the function of libc by this name, whose type this is.
        let f = unsafe { std::mem::transmute::<*mut c_void, Join>(symbol.must()) };
        // SAFETY: C's contract of pthread_join holds for the caller.
        unsafe { f(thread, value) }
    };
    match state::live() {
        Some((world, Role::World)) if world.threads.any() => loop {
            world.threads.settle();
            match join(&TRY_JOIN) {
                libc::EBUSY => super::syscall::let_threads_go_on(world),
                r => return r,
            }
        },
        _ => join(&JOIN),
    }
}

type Join = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;

static CREATE: Hidden = Hidden::new(c"pthread_create");
static JOIN: Hidden = Hidden::new(c"pthread_join");
static TRY_JOIN: Hidden = Hidden::new(c"pthread_tryjoin_np");

fn real() -> Create {
    // SAFETY: the address of libc's pthread_create, whose type this is.
    unsafe { std::mem::transmute::<*mut c_void, Create>(CREATE.must()) }
}
