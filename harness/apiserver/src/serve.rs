//! The server behind connections: HTTP/1.1, or HTTP/2 with prior knowledge, on any byte stream.

use std::io;

use futures::{Stream, StreamExt};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;

use crate::hooks::ConnInfo;
use crate::server::ApiServer;

impl ApiServer {
    /// Serves every connection that comes in, until `incoming` ends or fails. Open connections live on in tasks of
    /// their own, and end with the runtime.
    ///
    /// `client` names the peer of a connection; see [`ConnInfo`]. Each event of a watch is a chunk of its own, and the
    /// headers of a watch are sent at once.
    ///
    /// Where it is called again after it has ended, a new process begins: see [`ApiServer::restart`].
    pub async fn serve<IO>(
        &self,
        incoming: impl Stream<Item = io::Result<IO>>,
        client: impl Fn(&IO) -> ConnInfo,
    ) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let _life = self.begin_life();
        let mut incoming = std::pin::pin!(incoming);
        while let Some(io) = incoming.next().await {
            let io = io?;
            let server = self.on(client(&io));
            let service = service_fn(move |request| server.clone().call(request));
            tokio::spawn(async move {
                let mut http = auto::Builder::new(TokioExecutor::new());
                // Idle connections stay open, as they do for much longer than any test on a real server.
                http.http1().header_read_timeout(None);
                let connection = http.serve_connection(TokioIo::new(io), service);
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "connection ended");
                }
            });
        }
        Ok(())
    }
}
