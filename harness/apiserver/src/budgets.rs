//! Disruption budgets: which evictions they allow (Kubernetes docs: "API-initiated eviction").

use serde_json::Value;

use crate::clock;
use crate::error::ApiError;
use crate::history::History;
use crate::store::position;

/// Asks the budgets of a pod's namespace whether it may be evicted, and takes the disruption from the one that allows it.
pub(crate) fn take(history: &mut History, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
    // Nobody depends on a pod that does not run.
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if pod["metadata"].get("deletionTimestamp").is_some() || matches!(phase, "Pending" | "Succeeded" | "Failed") {
        return Ok(());
    }
    let Some(table) = position(history, "poddisruptionbudgets") else { return Ok(()) };
    let prefix = format!("{}/", pod["metadata"]["namespace"].as_str().unwrap_or_default());
    let budgets: Vec<(String, Value)> = history.tables[table]
        .live
        .range(prefix.clone()..)
        .take_while(|(key, _)| key.starts_with(&prefix))
        .filter(|(_, budget)| selects(&budget.value()["spec"]["selector"], &pod["metadata"]["labels"]))
        .map(|(key, budget)| (key.clone(), Value::clone(budget.value())))
        .collect();
    match budgets.as_slice() {
        [] => Ok(()),
        [(key, budget)] => {
            let next = allowed(budget, pod["metadata"]["name"].as_str().unwrap_or_default())?;
            if !dry_run {
                history.commit(table, key, Some(next));
            }
            Ok(())
        }
        _ => Err(ApiError::failed_inside(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )),
    }
}

/// The budget after one more disruption, or why there can be none.
fn allowed(budget: &Value, pod: &str) -> Result<Value, ApiError> {
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let status = &budget["status"];
    if number(&status["observedGeneration"]) < number(&budget["metadata"]["generation"]) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(ApiError::budget(&why, Some(10)));
    }
    if number(&status["disruptionsAllowed"]) <= 0 {
        let (wanted, healthy) = (number(&status["desiredHealthy"]), number(&status["currentHealthy"]));
        let why = format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently");
        return Err(ApiError::budget(&why, None));
    }
    let mut next = budget.clone();
    next["status"]["disruptionsAllowed"] = (number(&status["disruptionsAllowed"]) - 1).into();
    next["status"]["disruptedPods"][pod] = clock::rfc3339(clock::now()).into();
    Ok(next)
}

/// Whether a label selector (`matchLabels`, `matchExpressions`) selects these labels. None selects nothing, an empty
/// one everything.
fn selects(selector: &Value, labels: &Value) -> bool {
    let Some(selector) = selector.as_object() else { return false };
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let holds = |expression: &Value| {
        let found = label(expression["key"].as_str().unwrap_or_default());
        let listed =
            found.is_some_and(|found| expression["values"].as_array().is_some_and(|v| v.iter().any(|v| v == found)));
        match expression["operator"].as_str() {
            Some("In") => listed,
            Some("NotIn") => !listed,
            Some("Exists") => found.is_some(),
            Some("DoesNotExist") => found.is_none(),
            _ => false,
        }
    };
    { equal }.all(|(key, value)| label(key) == value.as_str()) && { expressions }.all(holds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select_as_the_table_says() {
        let labels = json!({"app": "x", "tier": "web"});
        let table = [
            (json!(null), false),
            (json!({}), true),
            (json!({"matchLabels": {"app": "x"}}), true),
            (json!({"matchLabels": {"app": "y"}}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["y", "x"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}), false),
            (json!({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}), true),
            (json!({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "none", "operator": "Exists"}]}), false),
        ];
        for (selector, selected) in table {
            assert_eq!(selects(&selector, &labels), selected, "{selector}");
        }
    }

    #[test]
    fn a_budget_allows_what_its_controller_has_counted() {
        let budget = |observed: i64, allowed: i64| {
            json!({
                "metadata": {"name": "pdb", "generation": 1},
                "status": {"observedGeneration": observed, "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1},
            })
        };
        let refusal = |budget: &Value| allowed(budget, "p").map_err(|error| (error.code, error.retry_after));
        assert_eq!(refusal(&budget(0, 1)), Err((429, Some(10))));
        assert_eq!(refusal(&budget(1, 0)), Err((429, None)));
        let next = allowed(&budget(1, 2), "p").expect("allowed");
        assert_eq!(next["status"]["disruptionsAllowed"], 1);
        assert!(next["status"]["disruptedPods"]["p"].is_string());
    }
}
