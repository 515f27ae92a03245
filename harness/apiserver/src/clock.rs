//! Timestamps as Kubernetes writes them, and the random parts of new objects.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The wall clock, in whole seconds, as `metav1.Time` is.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// The wall clock as `metav1.MicroTime`: `2026-11-29T16:15:18.123456Z`.
#[cfg(feature = "actors")]
pub(crate) fn micro() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!("{}.{:06}Z", rfc3339(now.as_secs()).trim_end_matches('Z'), now.subsec_micros())
}

/// `2026-11-29T16:15:18Z`.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let (days, of_day) = ((seconds / 86_400) as i64, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Date of a day since 1970-01-01 in the proleptic Gregorian calendar: shift the year to start in March, so that the
/// leap day is its last, then count 400-year, 100-year, 4-year and 1-year periods.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// A fresh `metadata.uid`.
pub(crate) fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Five characters from the alphabet of generated names, which has no vowels and no look-alikes.
pub(crate) fn suffix() -> String {
    // The first six bytes of a version 4 UUID are random.
    spell(&uuid::Uuid::new_v4().as_bytes()[..5])
}

fn spell(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    bytes.iter().map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_the_calendar() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_790_000_000, "2026-09-21T14:13:20Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in table {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn a_suffix_has_five_characters_that_are_valid_in_names() {
        let suffix = spell(&[0, 27, 255, 3, 9]);
        assert_eq!(suffix, "bbqfm");
        assert_eq!(super::suffix().len(), 5);
    }
}
