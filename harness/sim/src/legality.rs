//! What a real cluster may do, and the sentence of the contract that allows it.
//!
//! Faults are declared where they are made, as statics; every fault names its legality, so that a violation which a run
//! finds is one that can happen, or says loudly that it cannot.

/// One way in which reality may leave the good path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Kebab-case name, as reports use it.
    pub name: &'static str,
    /// Which clusters may do it.
    pub legality: Legality,
    /// The sentence of the API contract on which it rests.
    pub contract: &'static str,
}

/// Which clusters may show a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legality {
    /// Any cluster.
    Always,
    /// Only clusters with several API servers.
    Ha,
    /// Only clusters before this Kubernetes version, such as `1.31`.
    Until(&'static str),
    /// No cluster: for experiments.
    Never,
}

/// Which faults may be drawn. By default only those that any cluster may show.
///
/// A pinned fault is always taken, whatever its legality: somebody asked for it by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The cluster has several API servers.
    pub ha: bool,
    /// The cluster's Kubernetes version, major and minor; `None` for one newer than all that faults name.
    pub version: Option<(u32, u32)>,
    /// Faults that no cluster shows are welcome.
    pub never: bool,
}

impl Allowed {
    /// Whether a fault of this legality may be drawn.
    pub fn permits(&self, legality: Legality) -> bool {
        match legality {
            Legality::Always => true,
            Legality::Ha => self.ha,
            Legality::Until(end) => match (self.version, version(end)) {
                (Some(cluster), Some(end)) => cluster < end,
                _ => false,
            },
            Legality::Never => self.never,
        }
    }
}

/// `1.31` as (1, 31).
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl std::fmt::Display for Legality {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Legality::Always => f.write_str("always"),
            Legality::Ha => f.write_str("ha"),
            Legality::Until(version) => write!(f, "until {version}"),
            Legality::Never => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_that_the_cluster_can_show_may_be_drawn() {
        let plain = Allowed::default();
        let ha = Allowed { ha: true, ..plain };
        let old = Allowed { version: Some((1, 30)), ..plain };
        let new = Allowed { version: Some((1, 31)), ..plain };
        let all = Allowed { never: true, ..plain };
        let rows = [
            (Legality::Always, [true, true, true, true, true]),
            (Legality::Ha, [false, true, false, false, false]),
            (Legality::Until("1.31"), [false, false, true, false, false]),
            (Legality::Until("not a version"), [false, false, false, false, false]),
            (Legality::Never, [false, false, false, false, true]),
        ];
        for (legality, expected) in rows {
            assert_eq!([plain, ha, old, new, all].map(|a| a.permits(legality)), expected, "{legality}");
        }
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(Allowed { version: Some((1, 9)), ..Allowed::default() }.permits(Legality::Until("1.31")));
    }
}
