//! Which switches are on, and what runs the hosts: the options of a run that do not come from its scenario.
use std::fmt;

use indexmap::{IndexMap, IndexSet};
use serde::{Deserialize, Serialize};

use crate::mistake::BadInput;
use crate::scenario::Scenario;
use crate::switch::{Switch, SwitchKind};
use crate::system::{Cluster, ClusterOption, Engine};

/// The set of switches that a run starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// All merged remedies and the recommended ones of the proposed.
    #[default]
    Default,
    /// No proposed remedy; merged ones stay on, except those in the scenario's `reported-without`.
    AsReported,
    /// Everything off.
    Bare,
}

impl Profile {
    /// As run ids write it; empty for the default.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Default => "",
            Profile::AsReported => "as-reported",
            Profile::Bare => "bare",
        }
    }
}

/// A profile, and single switches that differ from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Where the set starts from.
    pub profile: Profile,
    /// Switched on besides.
    pub with: IndexSet<String>,
    /// Switched off. A name is never in both.
    pub without: IndexSet<String>,
    /// What runs the hosts.
    pub engine: Engine,
    /// Cluster options in place of the scenario's own.
    pub cluster: IndexMap<String, String>,
}

impl Options {
    /// The default set.
    pub fn new() -> Options {
        Options::default()
    }
    /// The code as it was reported.
    pub fn as_reported() -> Options {
        Options { profile: Profile::AsReported, ..Options::default() }
    }
    /// The same, with these switches on.
    pub fn with<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Options {
        for name in names.into_iter().map(Into::into) {
            self.without.shift_remove(&name);
            self.with.insert(name);
        }
        self
    }
    /// The same, with these switches off.
    pub fn without<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Options {
        for name in names.into_iter().map(Into::into) {
            self.with.shift_remove(&name);
            self.without.insert(name);
        }
        self
    }
    /// The same, in another cluster.
    pub fn in_cluster<'o>(mut self, options: impl IntoIterator<Item = (&'o str, &'o str)>) -> Options {
        self.cluster.extend(options.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())));
        self
    }
    /// The cluster of a run of this scenario.
    pub fn cluster_of(&self, scenario: &Scenario) -> Cluster {
        let mut cluster = scenario.cluster.clone();
        self.cluster.iter().for_each(|(name, value)| cluster.set(name, value));
        cluster
    }
    /// What differs from the scenario's cluster, as `controller=v0.4.6`.
    pub fn cluster_words(&self) -> Vec<String> {
        self.cluster.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }
    /// All names must be switches of the system, none on and off at once, and cluster options with one of their values.
    pub fn check(&self, switches: &[Switch], cluster: &[ClusterOption]) -> Result<(), BadInput> {
        for (name, value) in &self.cluster {
            let Some(option) = cluster.iter().find(|o| o.name == name) else {
                return Err(BadInput::unknown("cluster option", name, cluster.iter().map(|o| o.name)));
            };
            if !option.values.contains(&&**value) {
                return Err(BadInput::unknown(&format!("value of {name}"), value, option.values.iter().copied()));
            }
        }
        for name in self.with.iter().chain(&self.without) {
            if !switches.iter().any(|s| s.name == name) {
                return Err(BadInput::unknown("remedy", name, switches.iter().map(|s| s.name)));
            }
        }
        match self.with.intersection(&self.without).next() {
            Some(name) => Err(BadInput::new(format!("the remedy `{name}` is asked for and switched off at once"))
                .help("name it in only one of --with and --without")),
            None => Ok(()),
        }
    }
    /// The switches that are on, in the system's order, for a scenario with this `reported-without`.
    pub fn resolve(&self, switches: &[Switch], reported_without: &[String]) -> IndexSet<String> {
        let on = |s: &&Switch| {
            if self.with.contains(s.name) || self.without.contains(s.name) {
                return self.with.contains(s.name);
            }
            match (self.profile, s.kind) {
                (_, SwitchKind::Mutant) | (Profile::Bare, _) => false,
                (Profile::Default, SwitchKind::Proposed { recommended }) => recommended,
                (Profile::Default, SwitchKind::Merged) => true,
                (Profile::AsReported, SwitchKind::Proposed { .. }) => false,
                (Profile::AsReported, SwitchKind::Merged) => !reported_without.iter().any(|r| r == s.name),
            }
        };
        switches.iter().filter(on).map(|s| s.name.to_owned()).collect()
    }
    /// The same set in its shortest form: switches in the system's order, only those that differ from the profile.
    pub fn canonical(&self, switches: &[Switch], reported_without: &[String]) -> Options {
        let (engine, cluster) = (self.engine, self.cluster.clone());
        let base = Options { profile: self.profile, engine, cluster, ..Options::default() };
        let (before, after) = (base.resolve(switches, reported_without), self.resolve(switches, reported_without));
        let names = |keep: &dyn Fn(&str) -> bool| -> IndexSet<String> {
            switches.iter().map(|s| s.name).filter(|n| keep(n)).map(str::to_owned).collect()
        };
        Options {
            with: names(&|n| after.contains(n) && !before.contains(n)),
            without: names(&|n| before.contains(n) && !after.contains(n)),
            ..base
        }
    }
    /// Reads what [`Display`](fmt::Display) wrote. Names are not checked here.
    pub fn parse(text: &str) -> Result<Options, String> {
        let mut options = Options::default();
        let mut engines = 0;
        for (i, word) in text.split(',').filter(|w| !w.is_empty()).enumerate() {
            let engine = Engine::ALL.into_iter().find(|e| e.name() == word);
            if let Some((name, value)) = word.split_once('=') {
                options.cluster.insert(name.to_owned(), value.to_owned());
                continue;
            }
            match (word.split_at_checked(1), engine) {
                (Some(("+", name)), _) if !name.is_empty() => _ = options.with.insert(name.to_owned()),
                (Some(("-", name)), _) if !name.is_empty() => _ = options.without.insert(name.to_owned()),
                (_, Some(engine)) if engines == 0 => (options.engine, engines) = (engine, 1),
                (_, Some(engine)) => return Err(format!("a second engine, `{}`", engine.name())),
                _ if i == 0 && word == Profile::AsReported.name() => options.profile = Profile::AsReported,
                _ if i == 0 && word == Profile::Bare.name() => options.profile = Profile::Bare,
                _ => {
                    return Err(format!(
                        "expected as-reported, bare, an engine, or +remedy and -remedy, found `{word}`"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// As run ids hold it: empty for the default, else for instance `as-reported,+one,-other,turmoil`.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = vec![self.profile.name().to_owned()];
        words.extend(self.with.iter().map(|n| format!("+{n}")));
        words.extend(self.without.iter().map(|n| format!("-{n}")));
        if self.engine != Engine::default() {
            words.push(self.engine.name().to_owned());
        }
        words.extend(self.cluster_words());
        words.retain(|w| !w.is_empty());
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn switch(name: &'static str, kind: SwitchKind) -> Switch {
        Switch { name, kind, sentence: "", from: "" }
    }
    const SWITCHES: &[Switch] = &[
        switch("best", SwitchKind::Proposed { recommended: true }),
        switch("other", SwitchKind::Proposed { recommended: false }),
        switch("old", SwitchKind::Merged),
        switch("older", SwitchKind::Merged),
        switch("wrong", SwitchKind::Mutant),
    ];

    #[test]
    fn each_profile_switches_on_what_it_says() {
        let reported_without = ["older".to_owned()];
        for (options, on) in [
            (Options::new(), &["best", "old", "older"][..]),
            (Options::as_reported(), &["old"]),
            (Options { profile: Profile::Bare, ..Options::new() }, &[]),
            (Options::as_reported().with(["other", "older"]), &["other", "old", "older"]),
            (Options::new().without(["best"]).with(["wrong"]), &["old", "older", "wrong"]),
        ] {
            let resolved = options.resolve(SWITCHES, &reported_without);
            assert_eq!(resolved.iter().map(String::as_str).collect::<Vec<_>>(), on, "{options:?}");
        }
    }

    #[test]
    fn options_are_written_shortest_and_read_back() {
        for (options, text) in [
            (Options::new(), ""),
            (Options::new().with(["best"]), ""),
            (Options::new().without(["wrong"]), ""),
            (Options::as_reported().with(["wrong", "best"]).without(["old"]), "as-reported,+best,+wrong,-old"),
            (Options { engine: Engine::Turmoil, ..Options::new() }, "turmoil"),
            (Options { profile: Profile::Bare, ..Options::new() }, "bare"),
        ] {
            let canonical = options.canonical(SWITCHES, &[]);
            assert_eq!(canonical.to_string(), text);
            assert_eq!(Options::parse(text), Ok(canonical));
        }
    }

    #[test]
    fn wrong_options_are_refused() {
        for text in ["as-reprted", "+", "best", "+best,bare"] {
            assert!(Options::parse(text).is_err(), "{text}");
        }
        let unknown = Options::new().with(["bst"]).check(SWITCHES, &[]).expect_err("unknown");
        assert_eq!(unknown.mistake().help.as_deref(), Some("did you mean `best`?"));
        let mut both = Options::new().with(["best"]);
        both.without.insert("best".into());
        assert!(both.check(SWITCHES, &[]).is_err());
    }
}
