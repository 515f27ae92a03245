//! The cluster of a seed, where a scenario has it drawn.
use indexmap::IndexMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::system::{Cluster, ClusterOption};

/// How often a cluster is drawn that cannot be, before the scenario's own is taken.
const ATTEMPTS: u32 = 64;

/// Values for the options named in `drawn`: each by the seed and its name alone, those in `given` as they are; drawn again
/// while they do not fit each other.
pub fn drawn(
    options: &[ClusterOption],
    drawn: &[String],
    given: &IndexMap<String, String>,
    own: &Cluster,
    fits: impl Fn(&Cluster) -> bool,
    seed: u64,
) -> IndexMap<String, String> {
    let of = |attempt: u32| -> IndexMap<String, String> {
        let value = |option: &ClusterOption| {
            let hash = xxh3_64_with_seed(format!("cluster/{}/{attempt}", option.name).as_bytes(), seed);
            option.values[hash as usize % option.values.len()].to_owned()
        };
        let asked = options.iter().filter(|o| drawn.iter().any(|name| name == o.name));
        let mut values: IndexMap<_, _> = asked.map(|o| (o.name.to_owned(), value(o))).collect();
        values.extend(given.clone());
        values
    };
    let fitting = |values: &IndexMap<String, String>| {
        let mut cluster = own.clone();
        values.iter().for_each(|(name, value)| cluster.set(name, value));
        fits(&cluster)
    };
    (0..ATTEMPTS).map(of).find(fitting).unwrap_or_else(|| given.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[ClusterOption] = &[
        ClusterOption { name: "release", values: &["3", "2", "1"], sentence: "" },
        ClusterOption { name: "api", values: &["new", "old"], sentence: "" },
        ClusterOption { name: "driver", values: &["real", "scripted"], sentence: "" },
    ];

    fn draw(given: &[(&str, &str)], seed: u64) -> Vec<String> {
        let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let names = ["release".to_owned(), "api".to_owned()];
        let fits = |c: &Cluster| (c.get("release") == "1") == (c.get("api") == "old");
        let own = Cluster::new(OPTIONS);
        drawn(OPTIONS, &names, &given, &own, fits, seed).iter().map(|(k, v)| format!("{k}={v}")).collect()
    }

    #[test]
    fn every_cluster_that_fits_is_drawn_and_no_other() {
        let mut seen = std::collections::BTreeMap::<_, u32>::new();
        for seed in 0..300 {
            assert_eq!(draw(&[], seed), draw(&[], seed));
            *seen.entry(draw(&[], seed).join(",")).or_default() += 1;
        }
        let clusters: Vec<&str> = seen.keys().map(String::as_str).collect();
        assert_eq!(clusters, ["release=1,api=old", "release=2,api=new", "release=3,api=new"]);
        assert!(seen.values().all(|n| *n > 60), "{seen:?}");
    }

    #[test]
    fn what_is_given_stays_and_the_rest_is_drawn_to_fit() {
        for seed in 0..20 {
            assert_eq!(draw(&[("release", "1")], seed), ["release=1", "api=old"]);
        }
        assert_eq!(draw(&[("release", "1"), ("api", "new")], 1), ["release=1", "api=new"], "the assembly says why not");
    }
}
