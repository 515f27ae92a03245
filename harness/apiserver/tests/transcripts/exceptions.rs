//! Exchanges that are known to differ, and what a session comes to.

use std::collections::BTreeMap;
use std::fmt;

use crate::session::{Difference, Results};

/// Why an exchange differs, and where: everywhere, or in fields whose paths match.
#[derive(Clone, Debug)]
struct Exception {
    places: Vec<String>,
    reason: String,
}

/// What is left of the list while sessions are judged.
#[derive(Debug, Default)]
pub(crate) struct Exceptions(BTreeMap<(String, u64), Exception>);

/// What a session comes to.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) exchanges: usize,
    pub(crate) equal: usize,
    pub(crate) excepted: usize,
    pub(crate) failures: Vec<String>,
}

impl Verdict {
    pub(crate) fn add(&mut self, other: Verdict) {
        self.exchanges += other.exchanges;
        self.equal += other.equal;
        self.excepted += other.excepted;
        self.failures.extend(other.failures);
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} exchanges, {} equal, {} excepted", self.exchanges, self.equal, self.excepted)
    }
}

impl Exceptions {
    /// A line is `<session> <seq>[,<seq>...] [@<place>[,<place>...]] <reason>`. A place is the path of a field, in which
    /// `*` stands for anything; without places the whole exchange is excepted.
    pub(crate) fn parse(text: &str) -> Exceptions {
        let mut all = BTreeMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let mut parts = line.splitn(3, ' ');
            let (session, seqs) = (parts.next().expect("a session"), parts.next().expect("sequence numbers"));
            let rest = parts.next().expect("a reason");
            let (places, reason) = match rest.strip_prefix('@') {
                Some(rest) => rest.split_once(' ').expect("a reason"),
                None => ("*", rest),
            };
            for seq in seqs.split(',') {
                let seq = seq.parse().expect("a number");
                let places = places.split(',').map(str::to_owned).collect();
                let twice = all.insert((session.to_owned(), seq), Exception { places, reason: reason.to_owned() });
                assert!(twice.is_none(), "{session} {seq} is listed twice");
            }
        }
        Exceptions(all)
    }

    /// Judges a session. An exception that does not differ any more fails it, as a difference does that is not listed.
    pub(crate) fn judge(&mut self, name: &str, results: &Results) -> Verdict {
        let mut verdict = Verdict { exchanges: results.len(), ..Verdict::default() };
        for (seq, differences) in results {
            let listed = self.0.remove(&(name.to_owned(), *seq));
            let excepted = |d: &&Difference| listed.iter().flat_map(|l| &l.places).any(|place| matches(place, &d.path));
            let (known, new): (Vec<&Difference>, Vec<&Difference>) = differences.iter().partition(excepted);
            if !new.is_empty() {
                let lines: Vec<String> = new.iter().take(8).map(|d| format!("    {d}")).collect();
                verdict.failures.push(format!("{name} {seq}:\n{}", lines.join("\n")));
                continue;
            }
            match &listed {
                None => verdict.equal += 1,
                Some(Exception { reason, .. }) if known.is_empty() => {
                    verdict.failures.push(format!("{name} {seq}: listed ({reason}) but equal"));
                }
                Some(_) => verdict.excepted += 1,
            }
        }
        verdict
    }

    /// What was listed and is not recorded.
    pub(crate) fn left(&self) -> impl Iterator<Item = String> {
        self.0.keys().map(|(name, seq)| format!("{name} {seq}: listed, but not recorded"))
    }
}

/// Whether a path matches a pattern in which `*` stands for anything.
fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((start, rest)) => {
            let Some(path) = path.strip_prefix(start) else { return false };
            (0..=path.len()).any(|at| path.is_char_boundary(at) && matches(rest, &path[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(of: &[(u64, &[&str])]) -> Results {
        let differ = |path: &&str| Difference { path: (*path).into(), recorded: "1".into(), ours: "2".into() };
        of.iter().map(|(seq, paths)| (*seq, paths.iter().map(differ).collect())).collect()
    }

    #[test]
    fn a_difference_that_is_not_listed_fails_and_is_shown() {
        let verdict = Exceptions::default().judge("x", &results(&[(1, &[]), (2, &[".a"])]));
        assert_eq!((verdict.exchanges, verdict.equal, verdict.excepted), (2, 1, 0));
        assert_eq!(verdict.failures, ["x 2:\n    .a: recorded 1 but got 2"]);
    }

    #[test]
    fn an_exception_that_does_not_differ_any_more_fails() {
        let mut exceptions = Exceptions::parse("# why\nx 1,2 it is so\nx 9 never seen\n");
        let verdict = exceptions.judge("x", &results(&[(1, &[".a"]), (2, &[])]));
        assert_eq!((verdict.equal, verdict.excepted), (0, 1));
        assert_eq!(verdict.failures, ["x 2: listed (it is so) but equal"]);
        assert_eq!(exceptions.left().collect::<Vec<_>>(), ["x 9: listed, but not recorded"]);
    }

    #[test]
    fn an_exception_with_places_excepts_nothing_else() {
        let listed = "x 1,2,3 @.columns[*].description,status in other words";
        let judged = |paths: &[&str]| Exceptions::parse(listed).judge("x", &results(&[(1, paths)]));
        assert_eq!(judged(&[".columns[3].description", "status"]).excepted, 1);
        assert_eq!(judged(&[".columns[3].name"]).failures.len(), 1);
        assert_eq!(judged(&[".columns[3].description", ".rows"]).failures.len(), 1);
        assert_eq!(judged(&[]).failures.len(), 1);
    }
}
