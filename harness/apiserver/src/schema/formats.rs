//! The formats of strings that the server checks. A format that it does not know is no limit.

/// Whether a text has the named format.
pub(crate) fn fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => date_time(text),
        "date" => date(text),
        "byte" => base64(text),
        "duration" => duration(text),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "uuid" => uuid::Uuid::try_parse(text).is_ok(),
        _ => true,
    }
}

fn digits(text: &str, from: usize, to: usize) -> Option<u32> {
    let part = text.get(from..to)?;
    part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
}

fn date(text: &str) -> bool {
    let parts = (digits(text, 0, 4), digits(text, 5, 7), digits(text, 8, 10));
    let (Some(year), Some(month @ 1..=12), Some(day)) = parts else { return false };
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-' && (1..=days).contains(&day)
}

/// RFC 3339, with a fraction of any length.
fn date_time(text: &str) -> bool {
    let Some((day, time)) = text.split_at_checked(10) else { return false };
    let Some(time) = time.strip_prefix(['T', 't', ' ']) else { return false };
    let clock = (digits(time, 0, 2), digits(time, 3, 5), digits(time, 6, 8));
    let (Some(0..=23), Some(0..=59), Some(0..=60)) = clock else { return false };
    if !date(day) || time.as_bytes()[2] != b':' || time.as_bytes()[5] != b':' {
        return false;
    }
    let rest = &time[8..];
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
        None => rest,
    };
    match zone.strip_prefix(['+', '-']) {
        Some(offset) => {
            offset.len() == 5
                && offset.as_bytes()[2] == b':'
                && matches!((digits(offset, 0, 2), digits(offset, 3, 5)), (Some(0..=23), Some(0..=59)))
        }
        None => matches!(zone, "Z" | "z"),
    }
}

fn base64(text: &str) -> bool {
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    let coded = &text.as_bytes()[..text.len() - padding];
    text.len().is_multiple_of(4)
        && padding <= 2
        && coded.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

/// A sequence of numbers with units, as `1h30m`.
fn duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - unit.len()];
        if number.is_empty() || number == "." || number.matches('.').count() > 1 {
            return false;
        }
        let units = ["ns", "us", "\u{b5}s", "\u{3bc}s", "ms", "s", "m", "h", "d", "w"];
        // The longest unit first, so that `ms` is not read as `m`.
        let Some(known) = units.iter().filter(|u| unit.starts_with(**u)).max_by_key(|u| u.len()) else { return false };
        rest = &unit[known.len()..];
    }
    true
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(address) = address.parse::<std::net::IpAddr>() else { return false };
    bits.parse::<u8>().is_ok_and(|bits| bits <= if address.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_what_the_table_says() {
        let table = [
            ("date-time", "2026-11-29T16:15:18Z", true),
            ("date-time", "2026-11-29T16:15:18.123456+01:00", true),
            ("date-time", "yesterday", false),
            ("date-time", "2026-11-29", false),
            ("date-time", "2026-02-30T00:00:00Z", false),
            ("date-time", "2026-11-29T24:00:00Z", false),
            ("date", "2024-02-29", true),
            ("date", "2026-02-29", false),
            ("byte", "YWI=", true),
            ("byte", "no spaces", false),
            ("duration", "1h30m", true),
            ("duration", "1.5s", true),
            ("duration", "5", false),
            ("duration", "", false),
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "10.0.0", false),
            ("cidr", "10.0.0.0/16", true),
            ("cidr", "10.0.0.0/33", false),
            ("uuid", "d24bb3ab-a16a-4e06-aef6-244dd9ecbbae", true),
            ("uuid", "x", false),
            ("no-such-format", "anything", true),
        ];
        for (format, text, fit) in table {
            assert_eq!(fits(format, text), fit, "{format} {text:?}");
        }
    }
}
