//! What tests of the cluster's actors share: an API server as a host of a world.
use photofinish_apiserver::{ApiServer, ConnInfo};
use photofinish_openshell::BoxError;
use photofinish_sim::host::HostCtx;
use photofinish_sim::wire::Io;

/// The main function of host `api`: serves on port 80 and calls clients by the names of their hosts.
pub(crate) async fn api(ctx: HostCtx, server: ApiServer) -> Result<(), BoxError> {
    let incoming = ctx.wire.listen(80).await?;
    let client = |io: &Io| ConnInfo {
        client: io.peer_host().map(|host| host.to_string()).unwrap_or_default(),
        connection: io.id(),
    };
    Ok(server.serve(incoming, client).await?)
}
