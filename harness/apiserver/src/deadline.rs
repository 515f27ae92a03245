//! `?timeout=`: how long a client wants to wait (Kubernetes API concepts: request timeouts of the clients' libraries).

use std::time::Duration;

use crate::error::ApiError;
use crate::request::{Query, Target, Verb};

/// The longest that a request takes, whatever it asks for.
const LONGEST: Duration = Duration::from_secs(60);

/// The time within which a request must be done, if it names one. Watches and the connections to pods have no such time.
pub(crate) fn of(target: &Target<'_>, verb: Verb, query: &Query) -> Result<Option<Duration>, ApiError> {
    let long = match target {
        Target::Objects(place) => {
            verb == Verb::Watch
                || matches!(place.subresource, Some("log" | "exec" | "attach" | "portforward" | "proxy"))
        }
        _ => false,
    };
    let text = query.text("timeout");
    if text.is_empty() || long {
        return Ok(None);
    }
    let asked = duration(text)
        .map_err(|why| ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    // Zero asks for nothing in particular.
    Ok(asked.filter(|asked| !asked.is_zero()).map(|asked| asked.min(LONGEST)))
}

/// A duration as Go writes it: `1h15m30.5s`, `300ms`. `None` where it is below zero.
fn duration(text: &str) -> Result<Option<Duration>, String> {
    let wrong = |what: &str| format!("time: {what} duration {text:?}");
    let (below, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Ok(Some(Duration::ZERO));
    }
    if rest.is_empty() {
        return Err(wrong("invalid"));
    }
    let mut nanos = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Ok(number) = rest[..digits].parse::<f64>() else { return Err(wrong("invalid")) };
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "" => return Err(wrong("missing unit in")),
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            unit => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        };
        nanos += number * unit;
        rest = &rest[end..];
    }
    // What does not fit into 64 bits of nanoseconds is no duration.
    if nanos > i64::MAX as f64 {
        return Err(wrong("invalid"));
    }
    Ok((!below).then(|| Duration::from_nanos(nanos as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::target;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let table = [
            ("5s", Ok(Some(Duration::from_secs(5)))),
            ("1ms", Ok(Some(Duration::from_millis(1)))),
            ("1h1m1.5s", Ok(Some(Duration::from_millis(3_661_500)))),
            (".5s", Ok(Some(Duration::from_millis(500)))),
            ("0", Ok(Some(Duration::ZERO))),
            ("-3s", Ok(None)),
            ("x", Err("time: invalid duration \"x\"")),
            ("s", Err("time: invalid duration \"s\"")),
            (".", Err("time: invalid duration \".\"")),
            ("-", Err("time: invalid duration \"-\"")),
            ("5", Err("time: missing unit in duration \"5\"")),
            ("5 s", Err("time: unknown unit \" s\" in duration \"5 s\"")),
            ("5d", Err("time: unknown unit \"d\" in duration \"5d\"")),
            ("99999999999999h", Err("time: invalid duration \"99999999999999h\"")),
        ];
        for (text, expected) in table {
            assert_eq!(duration(text), expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn only_requests_that_end_have_a_time_and_none_takes_longer_than_a_minute() {
        let asked = |path: &str, verb, query: &str| of(&target(path), verb, &Query::parse(query));
        let list = "/api/v1/pods";
        assert_eq!(asked(list, Verb::List, ""), Ok(None));
        assert_eq!(asked(list, Verb::List, "timeout=5s"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(asked(list, Verb::List, "timeout=10m"), Ok(Some(LONGEST)));
        assert_eq!(asked(list, Verb::List, "timeout=0s"), Ok(None));
        assert_eq!(asked(list, Verb::Watch, "timeout=x"), Ok(None));
        assert_eq!(asked("/api/v1/namespaces/d/pods/p/log", Verb::Get, "timeout=x"), Ok(None));
        assert_eq!(asked(list, Verb::List, "timeout=x").expect_err("refused").code, 400);
    }
}
