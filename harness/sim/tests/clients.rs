//! Real clients and servers over the simulated wire.
mod support;

use k8s_openapi::api::core::v1::ConfigMap;
use photofinish_sim::host::HostSpec;
use photofinish_sim::world::WorldConfig;
use std::time::Duration;
use support::{in_world, said, say, secs, stub};

#[test]
fn a_kube_client_talks_to_a_server_in_the_world() {
    let (said, connects, now) = in_world(
        WorldConfig::default(),
        |b| {
            b.host("api", HostSpec::new(), stub::api);
            b.host("driver", HostSpec::new(), |ctx| async move {
                let client = ctx.wire.kube("http://api:80", "d");
                for _ in 0..3 {
                    let map = kube::Api::<ConfigMap>::default_namespaced(client.clone()).get("a").await?;
                    let data = map.data.unwrap_or_default();
                    say(
                        &ctx,
                        format!("agent {} peer {} connection {}", data["agent"], data["peer"], data["connection"]),
                    );
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
                Ok(())
            });
        },
        |w| {
            w.start_all();
            assert!(w.run_until(secs(10), |w| !w.is_up("driver").unwrap()).unwrap());
            (said(w), support::entries(w, "net"), w.now())
        },
    );
    assert_eq!(said, ["driver: agent driver peer driver connection 1"; 3]);
    assert_eq!(connects, ["connect driver connects to api:80 (connection 1)"]);
    assert!(now > Duration::from_millis(750) && now < Duration::from_millis(760), "{now:?}");
}

/// A gRPC service without generated code: it answers every call with the name of the host that calls.
mod whoami {
    use bytes::{Buf, BufMut, Bytes};
    use photofinish_sim::wire::Peer;
    use std::convert::Infallible;
    use std::task::{Context, Poll};
    use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
    use tonic::{Request, Response, Status};

    /// Bytes as messages.
    #[derive(Default, Clone, Copy)]
    pub(crate) struct Raw;
    impl Codec for Raw {
        type Encode = Bytes;
        type Decode = Bytes;
        type Encoder = Raw;
        type Decoder = Raw;
        fn encoder(&mut self) -> Raw {
            Raw
        }
        fn decoder(&mut self) -> Raw {
            Raw
        }
    }
    impl Encoder for Raw {
        type Item = Bytes;
        type Error = Status;
        fn encode(&mut self, item: Bytes, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
            buf.put(item);
            Ok(())
        }
    }
    impl Decoder for Raw {
        type Item = Bytes;
        type Error = Status;
        fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
            Ok(Some(buf.copy_to_bytes(buf.remaining())))
        }
    }

    async fn answer(request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let peer = request.extensions().get::<Peer>().ok_or_else(|| Status::internal("no peer"))?;
        let name = peer.host.clone().ok_or_else(|| Status::internal("no name"))?;
        if request.get_ref().is_empty() {
            return Err(Status::failed_precondition(format!("{name} asks nothing")));
        }
        Ok(Response::new(Bytes::from(format!("{name} on connection {}", peer.connection))))
    }

    #[derive(Clone)]
    pub(crate) struct Server;
    impl tonic::server::NamedService for Server {
        const NAME: &'static str = "test.Whoami";
    }
    impl tower::Service<http::Request<tonic::body::Body>> for Server {
        type Response = http::Response<tonic::body::Body>;
        type Error = Infallible;
        type Future = futures::future::BoxFuture<'static, Result<Self::Response, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
            Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(tower::service_fn(answer), request).await) })
        }
    }
}

#[test]
fn a_tonic_client_talks_to_a_tonic_server_that_crashes_and_comes_back() {
    use bytes::Bytes;
    let said = in_world(
        WorldConfig::default(),
        |b| {
            let restart = photofinish_sim::host::RestartPolicy::Always { after: secs(1) };
            b.host("driver", HostSpec::new().restart(restart), |ctx| async move {
                let incoming = ctx.wire.listen(50051).await?;
                tonic::transport::Server::builder().add_service(whoami::Server).serve_with_incoming(incoming).await?;
                Ok(())
            });
            b.host("gateway", HostSpec::new(), |ctx| async move {
                let channel = tonic::transport::Endpoint::from_static("http://driver:50051")
                    .connect_with_connector_lazy(ctx.wire.connector());
                let mut client = tonic::client::Grpc::new(channel);
                for question in ["who", "", "who", "who"] {
                    client.ready().await?;
                    let path = http::uri::PathAndQuery::from_static("/test.Whoami/Ask");
                    let request = tonic::Request::new(Bytes::from(question));
                    match client.unary(request, path, whoami::Raw).await {
                        Ok(answer) => say(&ctx, format!("{:?}", answer.into_inner())),
                        Err(status) => say(&ctx, format!("{:?}: {}", status.code(), status.message())),
                    }
                    tokio::time::sleep(secs(1)).await;
                }
                std::future::pending().await
            });
        },
        |w| {
            w.start_all();
            w.run_for(Duration::from_millis(1_500)).unwrap();
            w.crash("driver").unwrap();
            w.run_for(secs(10)).unwrap();
            said(w)
        },
    );
    assert_eq!(
        said[..2],
        ["gateway: b\"gateway on connection 1\"", "gateway: FailedPrecondition: gateway asks nothing"]
    );
    assert!(said[2].starts_with("gateway: Unavailable: "), "{said:?}");
    assert_eq!(said[3..], ["gateway: b\"gateway on connection 2\""], "{said:?}");
}
