//! A simulated Kubernetes API server.
//!
//! One revision-ordered history of objects; get, list, watch and bookmark are views of it. Clients that speak to a
//! kube-apiserver speak to this one: over HTTP/1.1 on any byte stream ([`ApiServer::serve`]), or in memory, as a
//! [`tower::Service`] over `http` types. Its behaviour follows recorded sessions of kube-apiserver 1.36; what it does
//! not support it refuses with 501 and a `Status` that names it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use http::Request;
//! use http_body_util::{BodyExt, Full};
//! use photofinish_apiserver::ApiServer;
//! use tower::ServiceExt;
//!
//! let server = ApiServer::builder().build();
//! let request = Request::get("/api/v1/namespaces/default").body(Full::<bytes::Bytes>::default()).unwrap();
//! let response = server.oneshot(request).await.unwrap();
//! let body = response.into_body().collect().await.unwrap().to_bytes();
//! let namespace: serde_json::Value = serde_json::from_slice(&body).unwrap();
//! assert_eq!(namespace["status"]["phase"], "Active");
//! # }
//! ```
//!
//! As a service it goes under a `kube::Client`, of any version: `Client::new(server.as_client("me"), "default")`. The
//! crate's README says what is supported, and its examples show a controller under test.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "actors")]
pub mod actors;
mod autoscaler;
mod body;
mod budgets;
mod cache;
mod clock;
mod convert;
mod crd;
mod deadline;
mod defaults;
mod delete;
mod digest;
mod discovery;
mod error;
mod events;
mod history;
mod hooks;
mod list;
mod load;
mod object;
mod openapi;
mod operations;
mod ownership;
mod past;
mod patch;
mod pods;
mod protobuf;
mod reads;
mod request;
mod resource;
mod response;
mod reviews;
mod route;
mod schema;
mod selector;
mod serve;
mod server;
#[cfg(feature = "sim")]
pub mod sim;
mod store;
mod stored;
mod strategic;
#[cfg(test)]
mod support;
mod table;
mod tokens;
mod typed;
mod watch;
mod workloads;
mod write;
mod writer;
mod yaml;

pub use history::EventType;
pub use hooks::{Call, ConnInfo, Handed, Hooks, Refusal, Reply, Straight, Stream, Treatment, WatchItem, WatchPipe};
pub use load::LoadError;
pub use object::Shown;
pub use past::Past;
pub use request::Verb;
pub use resource::SandboxVersions;
pub use response::{Body, Lost};
pub use server::{ApiServer, BoxError, Builder};
pub use store::Store;
pub use writer::{WriteError, Writer};

/// Makes what all servers of this process share: schemas, compiled rules and patterns. Never needed; a program that forks
/// many short-lived processes saves them a few milliseconds each.
pub fn prepare() {
    crd::prepare();
}
