//! What the calling thread's world says of time and place.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static NOW: Cell<Option<Duration>> = const { Cell::new(None) };
    static HOST: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Whether the calling thread is inside a world.
pub fn in_world() -> bool {
    NOW.get().is_some()
}

/// Virtual time since the world's start; zero outside a world.
pub fn now() -> Duration {
    NOW.get().unwrap_or_default()
}

/// The host whose code runs now; `None` outside any host.
pub fn current_host() -> Option<Arc<str>> {
    HOST.with_borrow(Clone::clone)
}
