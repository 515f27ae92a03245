//! Pinned choices, as run ids carry them: `watch/driver/sandboxes/demo#4=+1.4s,crash/gateway/stop/after-write#2=yes`.
//!
//! No character in them needs quoting in a shell. Keys are names joined by `/`, of letters, digits and `._#-`; all else
//! is percent-encoded. The first `=` ends the key.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Write};
use std::str::FromStr;
use std::time::Duration;

/// Values of choices by key, in the order in which they were given. Text form: `key=value,key=value`.
///
/// ```
/// use photofinish_sim::pins::Pins;
///
/// let pins: Pins = "watch/driver/sandboxes/demo#4=+1.4s,op/2=stop.demo".parse()?;
/// assert_eq!(pins.get("op/2"), Some("stop.demo"));
/// assert_eq!(pins.to_string(), "watch/driver/sandboxes/demo#4=+1.4s,op/2=stop.demo");
/// # Ok::<(), photofinish_sim::pins::PinError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pins(IndexMap<String, String>);

/// Why a text is no list of pins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// No `=`, or nothing before or behind it.
    #[error("pin `{0}`: expected `key=value`")]
    Shape(String),
    /// A character that has to be percent-encoded, or a percent sign without two hexadecimal digits.
    #[error("pin `{pin}`: `{found}` must be percent-encoded; keys and values hold letters, digits and {allowed}")]
    Character {
        /// The pin.
        pin: String,
        /// The first bad character.
        found: char,
        /// What may stand there besides letters and digits.
        allowed: &'static str,
    },
    /// The percent-encoded bytes are not UTF-8.
    #[error("pin `{0}`: its percent-encoded bytes are not UTF-8")]
    NotText(String),
    /// The same key twice.
    #[error("pin `{0}`: its key is pinned twice")]
    Twice(String),
}

/// Besides letters and digits, what a key may hold as it is.
const KEY: &str = "/._#-";
/// Besides letters and digits, what a value may hold as it is.
const VALUE: &str = "/._#-+";

impl Pins {
    /// The value pinned for `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Pins `key`, which [`key()`](key()) made, to `value`; gives back what it was pinned to.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) -> Option<String> {
        self.0.insert(key.into(), value.into())
    }

    /// Pins what a text of pins says; where a key is pinned already, the text counts. In the middle of a run: unlike a
    /// map that is made for it, this leaves the keys of the next hash map as they are.
    ///
    /// # Errors
    /// The first pin that is none; those before it are pinned.
    pub fn insert_all(&mut self, text: &str) -> Result<(), PinError> {
        for pin in text.split(',').filter(|_| !text.is_empty()) {
            let (key, value) = one(pin)?;
            self.0.insert(key, value);
        }
        Ok(())
    }

    /// Removes a pin; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        self.0.shift_remove(key)
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Number of pins.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Pins {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pins: I) -> Pins {
        Pins(pins.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}

impl Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, value)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{key}={}", encode(value, VALUE))?;
        }
        Ok(())
    }
}

impl FromStr for Pins {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Pins, PinError> {
        let mut pins = IndexMap::new();
        for pin in text.split(',').filter(|_| !text.is_empty()) {
            let (key, value) = one(pin)?;
            if pins.insert(key, value).is_some() {
                return Err(PinError::Twice(pin.to_owned()));
            }
        }
        Ok(Pins(pins))
    }
}

/// Key and value of a pin's text.
fn one(pin: &str) -> Result<(String, String), PinError> {
    let shape = || PinError::Shape(pin.to_owned());
    let (key, value) = pin.split_once('=').ok_or_else(shape)?;
    if key.is_empty() || value.is_empty() {
        return Err(shape());
    }
    // A key stays encoded, as it is asked for; a value is what it stands for.
    Ok((checked(pin, key, KEY)?, decode(pin, &checked(pin, value, VALUE)?)?))
}

impl TryFrom<String> for Pins {
    type Error = PinError;
    fn try_from(text: String) -> Result<Pins, PinError> {
        text.parse()
    }
}

impl From<Pins> for String {
    fn from(pins: Pins) -> String {
        pins.to_string()
    }
}

/// A choice's key: the parts, percent-encoded where needed, joined by `/`.
///
/// ```
/// assert_eq!(photofinish_sim::choices::key(&["start", "pod", "demo#1"]), "start/pod/demo#1");
/// assert_eq!(photofinish_sim::choices::key(&["call", "a/b", "x=1"]), "call/a%2Fb/x%3D1");
/// ```
pub fn key(parts: &[&str]) -> String {
    let mut out = String::with_capacity(parts.iter().map(|part| part.len() + 1).sum());
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            out.push('/');
        }
        encode_onto(&mut out, part, "._#-");
    }
    out
}

fn plain(byte: u8, also: &str) -> bool {
    byte.is_ascii_alphanumeric() || also.bytes().any(|b| b == byte)
}

fn encode(text: &str, also: &str) -> String {
    let mut out = String::with_capacity(text.len());
    encode_onto(&mut out, text, also);
    out
}

fn encode_onto(out: &mut String, text: &str, also: &str) {
    // Nearly always all of it is plain.
    let (clean, rest) = text.split_at(text.bytes().position(|byte| !plain(byte, also)).unwrap_or(text.len()));
    out.push_str(clean);
    for byte in rest.bytes() {
        if plain(byte, also) {
            out.push(byte as char);
        } else {
            write!(out, "%{byte:02X}").expect("a String takes all");
        }
    }
}

/// Percent-encoded text, with its hexadecimal digits in upper case.
fn checked(pin: &str, text: &str, allowed: &'static str) -> Result<String, PinError> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(found) = chars.next() {
        let bad = || PinError::Character { pin: pin.to_owned(), found, allowed };
        if found == '%' {
            out.push('%');
            for _ in 0..2 {
                out.push(chars.next().filter(char::is_ascii_hexdigit).ok_or_else(bad)?.to_ascii_uppercase());
            }
        } else if found.is_ascii() && plain(found as u8, allowed) {
            out.push(found);
        } else {
            return Err(bad());
        }
    }
    Ok(out)
}

/// What checked percent-encoded text stands for.
fn decode(pin: &str, text: &str) -> Result<String, PinError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|d| (d as char).to_digit(16)).expect("two digits, as checked") as u8;
        bytes.push(if byte == b'%' { digit() << 4 | digit() } else { byte });
    }
    String::from_utf8(bytes).map_err(|_| PinError::NotText(pin.to_owned()))
}

/// Units of a delay, largest first: name and nanoseconds.
const UNITS: [(&str, u128); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A delay as pins and traces show it, exact to the nanosecond: `+1.4s`, `+250ms`, `+300us`, `+0s`.
pub fn print_delay(delay: Duration) -> String {
    let ns = delay.as_nanos();
    let (name, unit) = UNITS.into_iter().find(|(_, unit)| ns >= *unit).unwrap_or(UNITS[0]);
    let (whole, part, digits) = (ns / unit, ns % unit, unit.ilog10() as usize);
    if part == 0 {
        return format!("+{whole}{name}");
    }
    let part = format!("{part:0digits$}");
    format!("+{whole}.{}{name}", part.trim_end_matches('0'))
}

/// Reads what [`print_delay`] writes; `None` for anything else, so also for more digits than nanoseconds have.
pub fn parse_delay(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+')?;
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, name) = text.split_at(end);
    let (_, unit) = UNITS.into_iter().find(|(unit, _)| *unit == name)?;
    let digits = unit.ilog10() as usize;
    let (whole, part) = match number.split_once('.') {
        Some((whole, part)) if (1..=digits).contains(&part.len()) => (whole, format!("{part:0<digits$}")),
        Some(_) => return None,
        None => (number, "0".to_owned()),
    };
    let ns = whole.parse::<u128>().ok()?.checked_mul(unit)?.checked_add(part.parse().ok()?)?;
    Some(Duration::from_nanos(u64::try_from(ns).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_print_as_they_parse() {
        let rows = [
            "",
            "watch/driver/sandboxes/demo#4=+1.4s",
            "op/2=stop.demo,crash/gateway/stop/after-write#2=yes,a=no",
            "call/a%2Fb/x%3D1=%2C%3D%20",
            "k=%C3%A4",
        ];
        for text in rows {
            assert_eq!(text.parse::<Pins>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn pins_that_are_inserted_later_count_and_come_last() {
        let mut pins: Pins = "a=1,b=2".parse().unwrap();
        pins.insert_all("c=3,a=4%2C").unwrap();
        assert_eq!(pins.to_string(), "a=4%2C,b=2,c=3");
        pins.insert_all("").unwrap();
        assert_eq!(pins.insert_all("d=5,e"), Err(PinError::Shape("e".into())));
        assert_eq!(pins.to_string(), "a=4%2C,b=2,c=3,d=5");
    }

    #[test]
    fn a_value_may_hold_what_it_likes_and_an_equals_sign_in_it_is_encoded() {
        let pins: Pins = [("k", "a=b,c d%")].into_iter().collect();
        assert_eq!(pins.to_string(), "k=a%3Db%2Cc%20d%25");
        assert_eq!(pins.to_string().parse::<Pins>().unwrap(), pins);
    }

    #[test]
    fn lower_case_escapes_are_read_and_written_in_upper_case() {
        let pins: Pins = "a%2fb=%2c".parse().unwrap();
        assert_eq!((pins.get("a%2Fb"), pins.to_string().as_str()), (Some(","), "a%2Fb=%2C"));
    }

    #[test]
    fn errors_name_the_bad_pin_and_what_was_expected() {
        let rows = [
            ("a=1,b", "pin `b`: expected `key=value`"),
            ("=1", "pin `=1`: expected `key=value`"),
            ("a=", "pin `a=`: expected `key=value`"),
            ("a=1,,b=2", "pin ``: expected `key=value`"),
            ("a b=1", "pin `a b=1`: ` ` must be percent-encoded; keys and values hold letters, digits and /._#-"),
            ("a=1=2", "pin `a=1=2`: `=` must be percent-encoded; keys and values hold letters, digits and /._#-+"),
            ("a=%2", "pin `a=%2`: `%` must be percent-encoded; keys and values hold letters, digits and /._#-+"),
            ("ä=1", "pin `ä=1`: `ä` must be percent-encoded; keys and values hold letters, digits and /._#-"),
            ("a=%ff", "pin `a=%ff`: its percent-encoded bytes are not UTF-8"),
            ("a=1,a=2", "pin `a=2`: its key is pinned twice"),
        ];
        for (text, expected) in rows {
            assert_eq!(text.parse::<Pins>().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn pins_travel_in_json_as_their_text() {
        let pins: Pins = "a=1,b=2".parse().unwrap();
        assert_eq!(serde_json::to_string(&pins).unwrap(), r#""a=1,b=2""#);
        assert_eq!(serde_json::from_str::<Pins>(r#""a=1,b=2""#).unwrap(), pins);
        assert!(serde_json::from_str::<Pins>(r#""a""#).is_err());
    }

    #[test]
    fn delays_print_shortest_and_read_back_exactly() {
        let rows = [
            (0, "+0s"),
            (1, "+1ns"),
            (999, "+999ns"),
            (1_000, "+1us"),
            (1_001, "+1.001us"),
            (300_000, "+300us"),
            (999_999, "+999.999us"),
            (1_000_001, "+1.000001ms"),
            (250_000_000, "+250ms"),
            (1_400_000_000, "+1.4s"),
            (1_000_000_001, "+1.000000001s"),
            (90_000_000_000, "+90s"),
            (u64::MAX, "+18446744073.709551615s"),
        ];
        for (ns, text) in rows {
            assert_eq!(print_delay(Duration::from_nanos(ns)), text);
            assert_eq!(parse_delay(text), Some(Duration::from_nanos(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_no_delay_is_refused() {
        let rows = [
            "",
            "+",
            "1s",
            "+1",
            "+s",
            "+.5s",
            "+1.s",
            "+1m",
            "+1 s",
            "-1s",
            "+1.5ns",
            "+1.0000000001s",
            "+1.2.3s",
            "+1e3s",
            "+18446744074s",
            "+1s ",
        ];
        for text in rows {
            assert_eq!(parse_delay(text), None, "{text}");
        }
    }
}
