//! Notices hosts that never come to rest: loops in which time passes, and which nothing ends.
//!
//! A client that asks again as soon as it is answered makes progress in time, so it is no livelock, and a run in which it
//! does so for minutes ends at the wall limit: without a verdict, and after a time that is the machine's. Counted in steps
//! within a minute of virtual time it ends always the same way.

/// The time within which steps are counted, nanoseconds.
const WINDOW_NS: u64 = 60_000_000_000;

/// Steps since the present minute began.
#[derive(Debug, Default)]
pub(super) struct Busy {
    ends_ns: u64,
    all: u32,
    /// By host.
    each: Vec<u32>,
}

impl Busy {
    /// Host `i` has taken a step. The host that took most, once all together took more than `limit` within a minute.
    pub(super) fn step(&mut self, i: usize, now_ns: u64, limit: u32) -> Option<usize> {
        if now_ns >= self.ends_ns {
            self.ends_ns = now_ns.saturating_add(WINDOW_NS);
            self.all = 0;
            self.each.clear();
        }
        if self.each.len() <= i {
            self.each.resize(i + 1, 0);
        }
        self.each[i] += 1;
        self.all += 1;
        let most = || (0..self.each.len()).rev().max_by_key(|host| self.each[*host]).unwrap_or(i);
        (self.all > limit).then(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_one_minute_count_together_and_the_busiest_host_is_named() {
        let mut busy = Busy::default();
        let mut steps = |hosts: &[usize], at_s: u64| {
            let each = hosts.iter().map(|host| busy.step(*host, at_s * 1_000_000_000, 5));
            each.collect::<Vec<_>>().into_iter().flatten().next()
        };
        assert_eq!(steps(&[0, 1, 0, 1, 2], 0), None);
        assert_eq!(steps(&[0, 1, 0, 1, 2], 60), None, "a new minute");
        assert_eq!(steps(&[2], 119), Some(0), "of equals the first");
        assert_eq!(steps(&[2, 2, 0, 2, 0, 0], 300), Some(0));
        assert_eq!(steps(&[2, 2, 0, 2, 1, 1], 400), Some(2));
    }
}
