//! The rules of deletion: preconditions, finalizers, grace periods, propagation.

use serde_json::{Value, json};

use crate::crd;
use crate::error::{ApiError, Cause};
use crate::request::Query;
use crate::resource::Resource;
use crate::{clock, pods};

/// `DeleteOptions`, from the body or from the query.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) dry_run: bool,
}

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// The garbage collector deletes them after the owner.
    Background,
    /// The owner waits until they are gone.
    Foreground,
    /// They lose the owner and stay.
    Orphan,
}

/// What a deletion comes to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deletion {
    /// It is on its way already.
    Pending,
    /// The object stays, marked as terminating.
    Mark(Value),
    /// The object goes. Graceful types are first marked with a period of zero.
    Remove { mark: Option<Value> },
}

impl Options {
    /// The body wins over the query.
    pub(crate) fn parse(body: &[u8], query: &Query) -> Result<Options, ApiError> {
        let from_body: Value = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(body).map_err(|error| {
                ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
            })?
        };
        let mut causes = Vec::new();
        let in_body = from_body.is_object();
        let (policy, orphan, grace) = if in_body {
            (
                from_body["propagationPolicy"].as_str().map(str::to_owned),
                from_body["orphanDependents"].as_bool(),
                from_body["gracePeriodSeconds"].as_i64(),
            )
        } else {
            let orphan = query.get("orphanDependents").map(|_| query.flag("orphanDependents"));
            (query.get("propagationPolicy").map(str::to_owned), orphan, query.integer("gracePeriodSeconds")?)
        };
        let propagation = match policy.as_deref() {
            None | Some("") => orphan.map(|yes| if yes { Propagation::Orphan } else { Propagation::Background }),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                causes.push(Cause::unsupported("propagationPolicy", format_args!("{other:?}"), &known));
                None
            }
        };
        if let (Some(policy), Some(_)) = (&policy, orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &policy.as_str().into(), why));
        }
        let dry_run = match from_body["dryRun"].as_array() {
            Some(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            None => query.get("dryRun").map(str::to_owned).into_iter().collect::<Vec<String>>(),
        };
        causes.extend(bad_dry_run(&dry_run));
        if !causes.is_empty() {
            return Err(ApiError::invalid_options("DeleteOptions", &causes));
        }
        let precondition = |key: &str| from_body["preconditions"][key].as_str().map(str::to_owned);
        Ok(Options {
            grace,
            propagation,
            uid: precondition("uid"),
            revision: precondition("resourceVersion"),
            dry_run: !dry_run.is_empty(),
        })
    }
}

/// `dryRun` may only say `All`.
pub(crate) fn bad_dry_run(values: &[String]) -> Option<Cause> {
    (values.iter().any(|value| value != "All"))
        .then(|| Cause::unsupported("dryRun", format_args!("{:?}", values), &["All"]))
}

/// Whether the object is the one that the caller meant.
pub(crate) fn check_preconditions(
    resource: &Resource,
    name: &str,
    object: &Value,
    options: &Options,
) -> Result<(), ApiError> {
    let stored = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != stored("uid")) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            stored("uid")
        );
        return Err(ApiError::precondition(resource, name, why));
    }
    if let Some(revision) = options.revision.as_deref().filter(|revision| *revision != stored("resourceVersion")) {
        let why = format!(
            "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). The object might have been modified",
            stored("resourceVersion")
        );
        return Err(ApiError::precondition(resource, name, why));
    }
    Ok(())
}

/// What deleting the stored object (in the storage version) at `now` (seconds) comes to.
pub(crate) fn plan(resource: &Resource, object: &Value, options: &Options, now: u64) -> Deletion {
    let graceful = pods::graceful(resource);
    let mut next = object.clone();
    if let Some(mark) = object["metadata"]["deletionTimestamp"].as_str() {
        let running = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
        // Only a shorter period is taken, and counts from the first deletion.
        let shorter =
            options.grace.filter(|asked| graceful && running.is_some_and(|running| (0..running).contains(asked)));
        if let (Some(asked), Some(running)) = (shorter, running) {
            let began = parse_seconds(mark).unwrap_or(now).saturating_sub(running.unsigned_abs());
            stamp(&mut next, began, asked);
            return finish(next, options, true, asked);
        }
        // Another policy can still be asked for, and decides again which finalizers there are.
        return match finish(next, options, graceful, running.unwrap_or(0)) {
            Deletion::Mark(next) if next == *object => Deletion::Pending,
            // A namespace is held by its spec.
            Deletion::Remove { .. } if object["metadata"].get("finalizers").is_none() => Deletion::Pending,
            deletion => deletion,
        };
    }
    if resource.group == crd::GROUP {
        return Deletion::Mark(crd::marked(next, &clock::rfc3339(now)));
    }
    let grace = if graceful { pods::grace(object, options.grace) } else { 0 };
    if graceful {
        stamp(&mut next, now, grace);
        count(&mut next);
    }
    if &*resource.plural == "namespaces" && resource.group.is_empty() {
        stamp(&mut next, now, 0);
        if let Some(metadata) = next["metadata"].as_object_mut() {
            metadata.remove("deletionGracePeriodSeconds");
        }
        next["status"]["phase"] = "Terminating".into();
        let held = next.pointer("/spec/finalizers/0").is_some();
        return if held { Deletion::Mark(next) } else { Deletion::Remove { mark: None } };
    }
    let deletion = finish(next, options, graceful, grace);
    match deletion {
        Deletion::Mark(mut next) if !graceful => {
            stamp(&mut next, now, 0);
            count(&mut next);
            Deletion::Mark(next)
        }
        other => other,
    }
}

/// Settles finalizers, and with them whether the object can go now.
fn finish(mut next: Value, options: &Options, graceful: bool, grace: i64) -> Deletion {
    let mut finalizers: Vec<Value> = next["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if let Some(propagation) = options.propagation {
        let wanted = match propagation {
            Propagation::Background => None,
            Propagation::Foreground => Some("foregroundDeletion"),
            Propagation::Orphan => Some("orphan"),
        };
        finalizers.retain(|f| (f != "foregroundDeletion" && f != "orphan") || f.as_str() == wanted);
        if let Some(wanted) = wanted.filter(|wanted| !finalizers.iter().any(|f| f == wanted)) {
            finalizers.push(wanted.into());
        }
        if let Some(metadata) = next["metadata"].as_object_mut() {
            match finalizers.is_empty() {
                true => metadata.remove("finalizers"),
                false => metadata.insert("finalizers".into(), finalizers.clone().into()),
            };
        }
    }
    if !finalizers.is_empty() || grace > 0 {
        Deletion::Mark(next)
    } else {
        Deletion::Remove { mark: graceful.then_some(next) }
    }
}

fn stamp(object: &mut Value, now: u64, grace: i64) {
    object["metadata"]["deletionTimestamp"] = clock::rfc3339(now.saturating_add_signed(grace)).into();
    object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
}

/// Being told to go is a change of what is desired.
fn count(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

/// Seconds since 1970 of a timestamp that this server wrote.
pub(crate) fn parse_seconds(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let years: u64 = (1970..year).map(|y| if leap(y) { 366 } else { 365 }).sum();
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months: u64 = lengths.iter().take(month.checked_sub(1)? as usize).sum();
    Some((((years + months + day.checked_sub(1)?) * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn resource(plural: &str) -> Resource {
        registry(SandboxVersions::Both, true).into_iter().find(|r| r.plural == plural).expect("registered")
    }

    fn options(grace: Option<i64>, propagation: Option<Propagation>) -> Options {
        Options { grace, propagation, ..Options::default() }
    }

    const NOW: u64 = 1_790_000_000;

    #[test]
    fn an_object_without_finalizers_goes_at_once_and_one_with_them_is_marked() {
        let sandboxes = resource("sandboxes");
        let free = json!({"metadata": {"generation": 1}});
        assert_eq!(plan(&sandboxes, &free, &options(Some(30), None), NOW), Deletion::Remove { mark: None });
        let held = json!({"metadata": {"generation": 1, "finalizers": ["x/y"]}});
        let marked = json!({"metadata": {
            "generation": 2, "finalizers": ["x/y"],
            "deletionTimestamp": "2026-09-21T14:13:20Z", "deletionGracePeriodSeconds": 0,
        }});
        assert_eq!(plan(&sandboxes, &held, &options(None, None), NOW), Deletion::Mark(marked.clone()));
        assert_eq!(plan(&sandboxes, &marked, &options(None, None), NOW + 5), Deletion::Pending);
        assert_eq!(
            plan(&sandboxes, &marked, &options(None, Some(Propagation::Background)), NOW + 5),
            Deletion::Pending
        );
    }

    #[test]
    fn propagation_policies_leave_their_finalizer() {
        let configmaps = resource("configmaps");
        let object = json!({"metadata": {}});
        for (policy, finalizer) in [(Propagation::Foreground, "foregroundDeletion"), (Propagation::Orphan, "orphan")] {
            let Deletion::Mark(marked) = plan(&configmaps, &object, &options(None, Some(policy)), NOW) else {
                panic!("{policy:?} marks")
            };
            assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
            assert_eq!(marked["metadata"].get("generation"), None, "none was counted before");
        }
        let background = plan(&configmaps, &object, &options(None, Some(Propagation::Background)), NOW);
        assert_eq!(background, Deletion::Remove { mark: None });
    }

    #[test]
    fn another_deletion_can_still_change_the_policy() {
        let configmaps = resource("configmaps");
        let marked = |finalizers: Value| {
            json!({"metadata": {
                "finalizers": finalizers, "deletionTimestamp": "2026-09-21T14:13:20Z", "deletionGracePeriodSeconds": 0,
            }})
        };
        let orphan = marked(json!(["x/y", "orphan"]));
        let foreground = options(None, Some(Propagation::Foreground));
        let expected = marked(json!(["x/y", "foregroundDeletion"]));
        assert_eq!(plan(&configmaps, &orphan, &foreground, NOW), Deletion::Mark(expected));
        assert_eq!(plan(&configmaps, &orphan, &options(None, None), NOW), Deletion::Pending);
        let background = options(None, Some(Propagation::Background));
        assert_eq!(plan(&configmaps, &orphan, &background, NOW), Deletion::Mark(marked(json!(["x/y"]))));
        let alone = marked(json!(["orphan"]));
        assert_eq!(plan(&configmaps, &alone, &background, NOW), Deletion::Remove { mark: None });
    }

    #[test]
    fn a_bound_pod_gets_a_grace_period_that_can_only_shrink() {
        let pods = resource("pods");
        let pod = json!({
            "metadata": {"generation": 1}, "status": {"phase": "Running"},
            "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 30},
        });
        let Deletion::Mark(dying) = plan(&pods, &pod, &options(None, None), NOW) else { panic!("marks") };
        assert_eq!(dying["metadata"]["deletionTimestamp"], "2026-09-21T14:13:50Z");
        assert_eq!(dying["metadata"]["generation"], 2);
        assert_eq!(plan(&pods, &dying, &options(Some(60), None), NOW + 1), Deletion::Pending);
        assert_eq!(plan(&pods, &dying, &options(None, None), NOW + 1), Deletion::Pending);
        let Deletion::Mark(sooner) = plan(&pods, &dying, &options(Some(5), None), NOW + 2) else { panic!("marks") };
        assert_eq!(sooner["metadata"]["deletionTimestamp"], "2026-09-21T14:13:25Z", "counts from the first deletion");
        assert_eq!(sooner["metadata"]["generation"], 2);
        let Deletion::Remove { mark: Some(last) } = plan(&pods, &sooner, &options(Some(0), None), NOW + 3) else {
            panic!("removes after a last mark")
        };
        assert_eq!(last["metadata"]["deletionTimestamp"], "2026-09-21T14:13:20Z");
        assert_eq!(last["metadata"]["deletionGracePeriodSeconds"], 0);
    }

    #[test]
    fn an_unbound_pod_is_marked_and_removed_in_one_go() {
        let pod = json!({"metadata": {"generation": 1}, "spec": {}, "status": {"phase": "Pending"}});
        let Deletion::Remove { mark: Some(mark) } = plan(&resource("pods"), &pod, &options(None, None), NOW) else {
            panic!("removes after a mark")
        };
        assert_eq!(mark["metadata"]["generation"], 2);
    }

    #[test]
    fn options_come_from_the_body_or_the_query_and_are_checked() {
        let query = Query::parse("gracePeriodSeconds=5&propagationPolicy=Orphan");
        assert_eq!(Options::parse(b"", &query), Ok(options(Some(5), Some(Propagation::Orphan))));
        let body = br#"{"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}"#;
        let parsed = Options::parse(body, &query).expect("parses");
        assert_eq!((parsed.grace, parsed.propagation, parsed.uid.as_deref()), (Some(0), None, Some("u")));
        let refused = Options::parse(b"", &Query::parse("propagationPolicy=Huh")).expect_err("unknown");
        assert_eq!(
            refused.message(),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Huh\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
        );
    }

    #[test]
    fn timestamps_are_read_back_as_they_were_written() {
        for seconds in [0, 951_782_400, NOW, 4_107_542_400] {
            assert_eq!(parse_seconds(&clock::rfc3339(seconds)), Some(seconds));
        }
    }
}
