//! A controller as it is, run against a server in memory: its CRD, its work, and what becomes of a stale write.
//! `cargo run -p photofinish-apiserver --example in_memory_controller`.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, Client, ResourceExt};
use photofinish_apiserver::ApiServer;
use serde_json::{Value, json};

/// The controller under test: a widget's status says how large it is.
async fn reconcile(widget: Arc<DynamicObject>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let size = widget.data["spec"]["size"].as_u64().unwrap_or_default();
    let status = json!({
        "apiVersion": "toy.test/v1", "kind": "Widget", "metadata": {"name": widget.name_any()},
        "status": {"text": format!("{size} units")},
    });
    let api = widgets(&client);
    api.patch_status(&widget.name_any(), &PatchParams::apply("sizer").force(), &Patch::Apply(&status)).await?;
    Ok(Action::await_change())
}

fn widgets(client: &Client) -> Api<DynamicObject> {
    Api::default_namespaced_with(client.clone(), &widget())
}

fn widget() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("toy.test", "v1", "Widget"))
}

fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.toy.test"},
        "spec": {
            "group": "toy.test", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1, "default": 3}}},
                    "status": {"type": "object", "properties": {"text": {"type": "string"}}},
                }}},
            }],
        },
    })
}

// Time is tokio's: paused, it jumps to the next timer, and no back-off costs anything.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder().build();
    server.install(crd())?;

    let client = Client::new(server.as_client("sizer"), "default");
    let controller = Controller::new_with(widgets(&client), watcher::Config::default(), widget());
    let retry = |_: Arc<DynamicObject>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(1));
    tokio::spawn(controller.run(reconcile, retry, Arc::new(client)).for_each(|_| std::future::ready(())));

    let user = widgets(&Client::new(server.as_client("user"), "default"));
    let made = DynamicObject::new("w", &widget()).data(json!({"spec": {}}));
    let made = user.create(&PostParams::default(), &made).await?;
    println!("defaulted by the schema: size {}", made.data["spec"]["size"]);

    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let stored = server.store().get("widgets", "default", "w").ok_or("it is there")?;
    println!("after an hour: {}", stored["status"]["text"]);
    let owners = stored["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owners: Vec<_> = owners.map(|entry| entry["manager"].as_str().unwrap_or_default()).collect();
    println!("fields are owned by {}", owners.join(", "));

    // The user's copy is older than the controller's write.
    match user.replace("w", &PostParams::default(), &made).await {
        Err(kube::Error::Api(status)) => println!("a stale write: {} {}", status.code, status.reason),
        other => println!("not refused: {other:?}"),
    }
    Ok(())
}
