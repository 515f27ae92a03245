//! `kubectl create` in its typed forms, `run` and `expose`: all but the last two send protobuf.

use serde_json::{Value, json};

use crate::rig::Rig;

fn object(rig: &Rig, of: &str) -> Value {
    serde_json::from_str(&rig.ok(&format!("get {of} -o json"))).expect("JSON")
}

#[test]
fn configuration_is_created_from_literals_and_files() {
    let rig = rig!();
    let file = rig.file("notes.bin", &[0xff, 0x00, 0x7f]);
    assert_eq!(
        rig.ok(&format!("create configmap a --from-literal=k=v --from-literal=e= --from-file=n={file}")),
        "configmap/a created\n"
    );
    let map = object(&rig, "configmap a");
    assert_eq!((&map["data"], &map["binaryData"]), (&json!({"k": "v", "e": ""}), &json!({"n": "/wB/"})));
    assert_eq!(map["metadata"].get("generation"), None);
    rig.ok("create secret generic s --from-literal=password=secret");
    let secret = object(&rig, "secret s");
    assert_eq!((&secret["type"], &secret["data"]["password"]), (&"Opaque".into(), &"c2VjcmV0".into()));
    rig.ok("create secret docker-registry r --docker-username=u --docker-password=p --docker-server=x");
    assert_eq!(object(&rig, "secret r")["type"], "kubernetes.io/dockerconfigjson");
    assert!(rig.fails("create configmap a").contains("configmaps \"a\" already exists"));
}

#[test]
fn workloads_are_created_as_if_sent_in_json() {
    let rig = rig!();
    assert_eq!(rig.ok("create deployment d --image=img:1 --replicas=0 --port=80"), "deployment.apps/d created\n");
    let deployment = object(&rig, "deployment d");
    assert_eq!(deployment["spec"]["replicas"], 0);
    assert_eq!(deployment["spec"]["selector"], json!({"matchLabels": {"app": "d"}}));
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80, "protocol": "TCP"}])
    );
    // The same, as `create --dry-run` prints it for others to apply, is stored equal.
    let manifest = rig.ok("create deployment e --image=img:1 --replicas=0 --port=80 --dry-run=client -o json");
    rig.input(&manifest).ok("create -f -");
    let spec = |name: &str| object(&rig, &format!("deployment {name}"))["spec"].to_string().replace("\"e\"", "\"d\"");
    assert_eq!(spec("d"), spec("e"));
    rig.ok("create job j --image=img:1 -- sleep 1");
    let job = object(&rig, "job j");
    assert_eq!(job["spec"]["template"]["spec"]["restartPolicy"], "Never");
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["command"], json!(["sleep", "1"]));
    assert_eq!(rig.ok("run p --image=img:1 --labels=app=p --port=80"), "pod/p created\n");
    rig.ok("expose pod p --port=80 --target-port=http");
    assert_eq!(object(&rig, "service p")["spec"]["ports"][0]["targetPort"], "http");
}

#[test]
fn the_surroundings_of_workloads_are_created() {
    let rig = rig!();
    rig.ok("create namespace n");
    rig.ok("create serviceaccount sa -n n");
    rig.ok("create service clusterip c --tcp=80:8080 --tcp=81:web -n n");
    let ports = object(&rig, "service c -n n")["spec"]["ports"].clone();
    assert_eq!((&ports[0]["targetPort"], &ports[1]["targetPort"]), (&8080.into(), &"web".into()));
    rig.ok("create service externalname x --external-name=example.org -n n");
    assert_eq!(object(&rig, "service x -n n")["spec"]["externalName"], "example.org");
    rig.ok("create role r --verb=get,list --resource=pods,deployments.apps -n n");
    assert_eq!(object(&rig, "role r -n n")["rules"][1]["apiGroups"], json!(["apps"]));
    rig.ok("create rolebinding b --role=r --serviceaccount=n:sa -n n");
    assert_eq!(object(&rig, "rolebinding b -n n")["subjects"][0]["namespace"], "n");
    rig.ok("create clusterrole cr --verb=get --resource=nodes");
    rig.ok("create clusterrolebinding cb --clusterrole=cr --user=u");
    assert_eq!(object(&rig, "clusterrolebinding cb")["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    rig.ok("create poddisruptionbudget p --selector=app=x --max-unavailable=0 -n n");
    assert_eq!(object(&rig, "pdb p -n n")["spec"]["maxUnavailable"], 0);
    rig.ok("create priorityclass pc --value=-10 --description=low");
    assert_eq!(object(&rig, "priorityclass pc")["value"], -10);
    let token = rig.ok("create token sa -n n");
    assert!(token.starts_with("photofinish."), "{token}");
    rig.ok("delete serviceaccount sa -n n");
    assert!(rig.fails("create token sa -n n").contains("serviceaccounts \"sa\" not found"));
}

#[test]
fn quotas_ingresses_cron_jobs_and_autoscalers_are_created_and_shown() {
    let rig = rig!();
    let shown = |of: &str| {
        let lines = rig.ok(&format!("get {of} --no-headers"));
        lines.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    rig.ok("create quota q --hard=cpu=1,pods=2,limits.cpu=3");
    assert_eq!(object(&rig, "quota q")["spec"]["hard"], json!({"cpu": "1", "pods": "2", "limits.cpu": "3"}));
    assert_eq!(shown("quota q")[..7], ["q", "cpu:", "0/1,", "pods:", "0/2", "limits.cpu:", "0/3"]);
    // `describe` shows what a controller has put into the status: nothing yet.
    assert!(rig.ok("describe quota q").starts_with("Name:"));

    rig.ok("create ingress i --class=nginx --rule=example.org/a*=svc:80,tls=cert");
    let ingress = object(&rig, "ingress i");
    assert_eq!(ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"], json!({"number": 80}));
    assert_eq!(shown("ingress i")[..5], ["i", "nginx", "example.org", "80,", "443"]);
    assert!(rig.ok("describe ingress i").contains("example.org"));

    rig.ok("create cronjob c --image=img:1 --schedule=@daily -- date");
    let cron = object(&rig, "cronjob c");
    assert_eq!(cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"], "OnFailure");
    assert_eq!((&cron["spec"]["concurrencyPolicy"], &cron["spec"]["suspend"]), (&"Allow".into(), &false.into()));
    assert_eq!(shown("cronjob c")[..5], ["c", "@daily", "<none>", "False", "0"]);
    rig.ok("create job now --from=cronjob/c");
    assert_eq!(object(&rig, "job now")["metadata"]["ownerReferences"][0]["kind"], "CronJob");

    rig.ok("create deployment d --image=img:1");
    rig.ok("autoscale deployment d --min=2 --max=5 --cpu-percent=70");
    let scaler = object(&rig, "horizontalpodautoscalers.v2.autoscaling d");
    assert_eq!(scaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
    assert_eq!((&scaler["spec"]["minReplicas"], &scaler["spec"]["maxReplicas"]), (&2.into(), &5.into()));
    let old = object(&rig, "horizontalpodautoscalers.v1.autoscaling d");
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 70);
    assert_eq!(shown("hpa d")[..4], ["d", "Deployment/d", "cpu:", "<unknown>/70%"]);
    assert!(rig.ok("describe hpa d").contains("Deployment/d"));
}

#[test]
fn types_that_nothing_is_made_of_are_listed_and_empty_and_refused_by_name() {
    let rig = rig!();
    assert!(rig.ok("api-resources").contains("csidrivers"));
    assert_eq!(rig.run("get csidrivers").stderr, "No resources found\n");
    let driver = r#"{"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d"}}"#;
    let said = rig.input(driver).fails("create -f - --validate=false");
    assert!(said.contains("does not support writes of csidrivers.storage.k8s.io"), "{said}");
    let said = rig.fails("get --raw /api/v1/componentstatuses");
    assert!(said.contains("does not support the resource componentstatuses"), "{said}");
}
