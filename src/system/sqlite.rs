//! What a world must know of SQLite: its random numbers, and databases in memory that outlive a process.
use crate::BoxError;
use rusqlite::{Connection, OpenFlags, ffi};
use std::ffi::c_int;

/// Seeds SQLite's generator, which reads `/dev/urandom` by itself.
pub(super) fn seed(seed: u64) {
    let seed = (seed ^ seed >> 32) as u32 as c_int;
    // SAFETY: this control takes an int and a database handle that may be null, and only sets the generator's state;
    // the world is entered before any connection is open, on the only thread that uses SQLite.
    unsafe { ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_PRNG_SEED, seed, std::ptr::null_mut::<ffi::sqlite3>()) };
}

/// Keeps a `memdb` database alive while no simulated process has it open, as a disk would.
pub(super) fn anchor(database: &str) -> Result<Connection, BoxError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(database, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |s| -> i64 {
            seed(s);
            let db = Connection::open_in_memory().unwrap();
            db.query_row("select random()", [], |row| row.get(0)).unwrap()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
