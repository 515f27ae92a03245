//! The same GETs on turmoil with ticks of 1 ms: four hosts, hyper stub, `kube` client.
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

/// Time spent on one run.
pub(super) fn gets() -> Duration {
    let start = super::cpu();
    let mut sim = turmoil::Builder::new()
        .tick_duration(Duration::from_millis(1))
        .simulation_duration(Duration::from_secs(3_600))
        .min_message_latency(Duration::from_micros(300))
        .max_message_latency(Duration::from_micros(300))
        .build();
    sim.host("api", || async {
        let listener = TcpListener::bind(("0.0.0.0", 80)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            let answer = |_| async {
                let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"d"},"data":{"agent":"driver"}}"#;
                Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from_static(body.as_bytes()))))
            };
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer)),
            );
        }
    });
    for idle in ["gateway", "kubelet"] {
        sim.host(idle, || async { std::future::pending().await });
    }
    sim.client("driver", async {
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(Dial);
        let service = tower::ServiceBuilder::new()
            .layer(kube::client::middleware::BaseUriLayer::new(http::Uri::from_static("http://api:80")))
            .map_err(tower::BoxError::from)
            .service(http);
        super::gets(kube::Client::new(service, "d")).await.map_err(|e| e.to_string().into())
    });
    sim.run().expect("the client gets all its answers");
    super::cpu() - start
}

struct Stream(TcpStream);
#[derive(Clone)]
struct Dial;
impl tower::Service<http::Uri> for Dial {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, uri: http::Uri) -> Self::Future {
        let to = (uri.host().unwrap_or_default().to_owned(), uri.port_u16().unwrap_or(80));
        Box::pin(async move { Ok(TokioIo::new(Stream(TcpStream::connect(to).await?))) })
    }
}
impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}
impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
