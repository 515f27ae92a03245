//! The figure: how many of the mutants that compile are noticed.

use std::collections::BTreeMap;

use crate::BoxError;
use crate::run::{Outcome, Verdict};

#[derive(Clone, Copy, Default)]
struct Count {
    caught: usize,
    timeout: usize,
    missed: usize,
    unviable: usize,
    apart: usize,
}

impl Count {
    fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Caught => self.caught += 1,
            Verdict::Timeout => self.timeout += 1,
            Verdict::Missed => self.missed += 1,
            Verdict::Unviable => self.unviable += 1,
            Verdict::Apart => self.apart += 1,
        }
    }

    fn row(self, name: &str) -> String {
        let noticed = self.caught + self.timeout;
        let viable = noticed + self.missed;
        let percent = 100.0 * noticed as f64 / viable.max(1) as f64;
        let Count { caught, timeout, missed, unviable, apart } = self;
        format!("| `{name}` | {viable} | {caught} | {timeout} | {missed} | {percent:.1} % | {unviable} | {apart} |")
    }
}

/// A table with a line a file, and the names of the survivors.
pub fn print(outcomes: &[Outcome]) -> Result<(), BoxError> {
    let mut files: BTreeMap<&str, Count> = BTreeMap::new();
    let mut all = Count::default();
    for outcome in outcomes {
        let file = outcome.name.split(':').next().unwrap_or_default();
        files.entry(file).or_default().add(outcome.verdict);
        all.add(outcome.verdict);
    }
    println!("| file | viable | caught | hung | missed | noticed | not viable | not run |");
    println!("|---|---|---|---|---|---|---|---|");
    for (file, count) in files {
        println!("{}", count.row(file));
    }
    println!("{}", all.row("all"));
    for outcome in outcomes.iter().filter(|o| matches!(o.verdict, Verdict::Missed | Verdict::Apart)) {
        println!("{:?}: {} ({})", outcome.verdict, outcome.name, outcome.by);
    }
    Ok(())
}
