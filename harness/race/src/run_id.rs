//! Run ids: one string that says everything about a run.
//!
//! `pf1:<scenario>:<options>:<benign or s=N>:<pins>`, for instance
//! `pf1:late-stop@shared:as-reported,+some-remedy:s=51:watch/driver/sandboxes/demo#4=+1.4s`.
//! Besides `s=N`, `w=N` is a seed of a sweep's swarm (`w=N.ha`, `w=N.never` where it may draw more), and `q=N` a seed
//! that draws nothing: what shrinking leaves where ids and jitter of the world matter.
//! A scenario in a file is `<path>#<hash of its content>`, the path percent-encoded. No character needs quoting in sh.
use std::fmt;
use std::str::FromStr;

use photofinish_sim::choices::{Pins, Source};

use crate::mistake::BadInput;
use crate::options::Options;

/// The version that this program reads and writes.
pub const VERSION: &str = "pf1";

/// Everything that decides a run.
#[derive(Clone, Debug)]
pub struct RunId {
    /// Which scenario.
    pub scenario: ScenarioRef,
    /// Switches and engine.
    pub options: Options,
    /// Benign or a seed.
    pub source: Source,
    /// Pinned choices, beside those that the scenario pins itself.
    pub pins: Pins,
}

/// How a run id names its scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScenarioRef {
    /// Part of the program: its name, with `@variant` if it has several clusters.
    Builtin(String),
    /// A file.
    File {
        /// Path, relative to where the run was started if it was given so.
        path: String,
        /// Hash of the content.
        hash: String,
        /// Which of its clusters, if it has several.
        variant: Option<String>,
    },
}

impl fmt::Display for ScenarioRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScenarioRef::Builtin(name) => f.write_str(name),
            ScenarioRef::File { path, hash, variant } => {
                write!(f, "{}#{hash}", encode(path))?;
                variant.iter().try_for_each(|v| write!(f, "@{v}"))
            }
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunId { scenario, options, source, pins } = self;
        write!(f, "{VERSION}:{scenario}:{options}:{source}:{pins}")
    }
}

impl FromStr for RunId {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<RunId, BadInput> {
        let wrong = |why: String| {
            BadInput::new(format!("this is no run id: {why}")).help(format!(
                "expected {VERSION}:<scenario>:<options>:<benign or s=N>:<pins>, as a failing run prints it; got `{text}`"
            ))
        };
        let mut parts = text.trim().splitn(5, ':');
        let mut part = |what: &str| parts.next().ok_or_else(|| wrong(format!("its part `{what}` is missing")));
        let version = part("version")?;
        if version != VERSION {
            return Err(wrong(match version.strip_prefix("pf").is_some_and(|n| n.parse::<u32>().is_ok()) {
                true => format!("it has version {version}, this program knows {VERSION}"),
                false => format!("it does not start with {VERSION}:"),
            }));
        }
        let scenario = scenario_ref(part("scenario")?).map_err(&wrong)?;
        let options = Options::parse(part("options")?).map_err(&wrong)?;
        let source = part("benign or s=N")?.parse().map_err(|e| wrong(format!("{e}")))?;
        let pins = part("pins")?.parse().map_err(|e| wrong(format!("{e}")))?;
        Ok(RunId { scenario, options, source, pins })
    }
}

fn scenario_ref(text: &str) -> Result<ScenarioRef, String> {
    if text.is_empty() {
        return Err("it names no scenario".into());
    }
    let Some((path, rest)) = text.rsplit_once('#') else { return Ok(ScenarioRef::Builtin(text.to_owned())) };
    let (hash, variant) = rest.split_once('@').map_or((rest, None), |(h, v)| (h, Some(v.to_owned())));
    if hash.len() != 12 || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(format!("expected 12 hexadecimal digits behind `{path}#`, found `{hash}`"));
    }
    let path = decode(path).ok_or_else(|| format!("the path `{path}` is not percent-encoded text"))?;
    Ok(ScenarioRef::File { path, hash: hash.to_owned(), variant })
}

/// Percent-encodes all but letters, digits and `/._-`.
fn encode(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-".contains(&b);
    path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16)).map(|d| d as u8);
        bytes.push(if b == b'%' { digit()? << 4 | digit()? } else { b });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_back_as_they_were_written() {
        for id in [
            "pf1:late-stop-snapshot-after-stopped:as-reported:s=51:watch/driver/sandboxes/demo#4=+1.4s",
            "pf1:late-stop@shared::benign:",
            "pf1:late-stop::w=7.ha:",
            "pf1:late-stop::q=7:a=yes",
            "pf1:a:bare,+x,-y,turmoil:s=18446744073709551615:a/b=yes,c=no",
            "pf1:scenarios/my%20race%3A1.yaml#0123456789ab@managed::benign:",
        ] {
            let parsed: RunId = id.parse().unwrap_or_else(|e| panic!("{id}: {e}"));
            assert_eq!(parsed.to_string(), id);
        }
    }

    #[test]
    fn a_file_is_named_by_its_path_and_hash() {
        let id: RunId = "pf1:my%20race%3A1.yaml#0123456789ab@m::benign:".parse().expect("an id");
        let expected =
            ScenarioRef::File { path: "my race:1.yaml".into(), hash: "0123456789ab".into(), variant: Some("m".into()) };
        assert_eq!(id.scenario, expected);
    }

    #[test]
    fn no_character_of_an_id_needs_quoting_in_sh() {
        let path = (1..=255u8).map(char::from).collect::<String>();
        let scenario = ScenarioRef::File { path, hash: "0123456789ab".into(), variant: None };
        let id = RunId {
            scenario,
            options: Options::as_reported().with(["a"]).without(["b"]),
            source: Source::Seed(1),
            pins: "a/b#1=+1s".parse().expect("pins"),
        };
        let id = id.to_string();
        let harmless = |c: char| c.is_ascii_alphanumeric() || ":/._-+=,%#@".contains(c);
        assert!(id.chars().all(harmless), "{id}");
        assert_eq!(id.parse::<RunId>().expect("an id").to_string(), id);
    }

    #[test]
    fn what_is_no_id_is_refused_with_the_reason() {
        for (id, reason) in [
            ("", "does not start with pf1:"),
            ("pf2:a::benign:", "version pf2"),
            ("late-stop", "does not start with pf1:"),
            ("pf1:a", "`options` is missing"),
            ("pf1:a::benign", "`pins` is missing"),
            ("pf1:::benign:", "names no scenario"),
            ("pf1:a:as-reprted:benign:", "as-reprted"),
            ("pf1:a::s=x:", "expected benign or s=N, found `s=x`"),
            ("pf1:a::s=007:", "expected benign or s=N, found `s=007`"),
            ("pf1:a::benign:x", "expected `key=value`"),
            ("pf1:a.yaml#xyz::benign:", "12 hexadecimal digits"),
            ("pf1:%zz#0123456789ab::benign:", "not percent-encoded"),
        ] {
            let error = id.parse::<RunId>().expect_err(id).to_string();
            assert!(error.contains(reason), "{id:?}: {error}");
        }
    }
}
