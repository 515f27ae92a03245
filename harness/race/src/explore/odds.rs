//! What k failures of n runs say.

/// The 95 % confidence interval of a rate (Wilson, "Probable Inference", 1927): lower and upper bound, 0.0 to 1.0.
/// Without runs nothing is known.
pub fn interval(k: u64, n: u64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (k, n, z) = (k as f64, n as f64, 1.959_964);
    let (rate, z2) = (k / n, z * z);
    let middle = (rate + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = z / (1.0 + z2 / n) * (rate * (1.0 - rate) / n + z2 / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

/// How many runs without a failure a fix needs until it is 95 % sure that the failure is not there any more at the rate at
/// which it was found: the smallest n with (1 - k/n0)^n <= 0.05.
pub fn clean_runs_needed(k: u64, n: u64) -> u64 {
    match (k, n) {
        (0, n) => 3 * n,
        (k, n) if k >= n => 1,
        (k, n) => (0.05f64.ln() / (1.0 - k as f64 / n as f64).ln()).ceil() as u64,
    }
}

/// What to say of k findings in n runs, in one line.
pub fn sentence(k: u64, n: u64) -> String {
    let (low, high) = interval(k, n);
    let percent = |rate: f64| format!("{:.2}", rate * 100.0);
    match (k, n) {
        (_, 0) => "no run, no knowledge".to_owned(),
        // Hanley and Lippman-Hand, "If Nothing Goes Wrong, Is Everything All Right?", 1983.
        (0, n) => {
            format!(
                "found in 0 of {n} runs: with 95 % confidence in less than {} % (rule of three)",
                percent((3.0 / n as f64).min(1.0))
            )
        }
        (k, n) => format!(
            "found in {k} of {n} runs ({} % to {} % with 95 % confidence); a fix needs {} clean runs for 95 % confidence",
            percent(low),
            percent(high),
            clean_runs_needed(k, n)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_textbook() {
        for (k, n, low, high) in [
            (0, 0, 0.0, 1.0),
            (0, 10, 0.0, 0.278),
            (5, 10, 0.237, 0.763),
            (60, 500, 0.094, 0.151),
            (10, 10, 0.722, 1.0),
        ] {
            let (l, h) = interval(k, n);
            assert!((l - low).abs() < 0.001 && (h - high).abs() < 0.001, "{k} of {n}: {l} to {h}");
        }
    }

    #[test]
    fn a_rarer_failure_needs_more_clean_runs() {
        for (k, n, needed) in [(1, 1, 1), (1, 2, 5), (60, 500, 24), (1, 500, 1497), (0, 500, 1500)] {
            assert_eq!(clean_runs_needed(k, n), needed, "{k} of {n}");
        }
    }

    #[test]
    fn the_sentence_names_the_rule_for_none() {
        assert_eq!(
            sentence(0, 300),
            "found in 0 of 300 runs: with 95 % confidence in less than 1.00 % (rule of three)"
        );
        assert!(sentence(1, 2).ends_with("a fix needs 5 clean runs for 95 % confidence"));
        assert!(!sentence(0, 0).contains('%'));
    }
}
