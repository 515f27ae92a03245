//! Spans of time as people read them.

use serde_json::Value;

use crate::delete::parse_seconds;

/// How long ago a timestamp was, in two units at most: `45s`, `3m20s`, `5h`, `2d3h`.
pub(super) fn since(timestamp: &Value, now: u64) -> String {
    match timestamp.as_str().and_then(parse_seconds) {
        Some(then) => span(now.saturating_sub(then)),
        None => "<unknown>".into(),
    }
}

/// A span of seconds.
pub(super) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: u64, unit: char, small: u64, rest: char| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{rest}"),
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_while_the_smaller_one_matters() {
        let table = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (601, "10m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (30_000, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (64_000_000, "2y10d"),
            (400_000_000, "12y"),
        ];
        for (seconds, text) in table {
            assert_eq!(span(seconds), text);
        }
        assert_eq!(since(&"2026-11-29T16:15:18Z".into(), 1_795_968_918 + 60), "60s");
        assert_eq!(since(&Value::Null, 0), "<unknown>");
    }
}
