//! A host that answers like a Kubernetes API server with one ConfigMap.
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use photofinish_sim::host::{BoxError, HostCtx};
use std::convert::Infallible;

/// GET of anything gives a ConfigMap whose data names the client's `User-Agent` and the connection.
pub(crate) async fn api(ctx: HostCtx) -> Result<(), BoxError> {
    let mut incoming = ctx.wire.listen(80).await?;
    while let Some(io) = incoming.next().await {
        let io = io?;
        let connection = io.id();
        let peer = io.peer_host().unwrap_or_else(|| "nobody".into());
        let answer = move |request: http::Request<hyper::body::Incoming>| {
            let agent = request.headers().get("user-agent").and_then(|v| v.to_str().ok()).unwrap_or("none").to_owned();
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","namespace":"d"}},"data":{{"agent":"{agent}","peer":"{peer}","connection":"{connection}"}}}}"#
            );
            async move {
                let response = http::Response::builder().header("content-type", "application/json");
                Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).expect("a valid response"))
            }
        };
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(io), hyper::service::service_fn(answer)),
        );
    }
    Ok(())
}
