//! `vfscale-snapshotter fork`: asks containerd, which knows all snapshots, for a copy of one.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use http::uri::PathAndQuery;
use prost_types::Timestamp;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::api::{Begin, Key, Mounts, SERVICE, Stat};
use crate::refusal::{Refusal, Result};
use crate::snapshots::COPY_OF;

/// A label without which containerd removes a snapshot that no container has.
const ROOT: &str = "containerd.io/gc.root";

/// Arguments of `fork`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The socket of containerd
    #[arg(long, value_name = "SOCKET", default_value = "/run/containerd/containerd.sock")]
    address: PathBuf,

    /// The namespace of containerd
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,

    /// The name of this snapshotter in the configuration of containerd
    #[arg(long, value_name = "NAME", default_value = "vfscale")]
    snapshotter: String,

    /// The key of the snapshot of the container, which for `ctr run` is that of the container.
    /// Pause it for a state of one moment
    key: String,

    /// The key of the new snapshot
    new: String,
}

/// Makes a snapshot that begins with the files of another one.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Refusal::at(Path::new("threads")))?;
    runtime.block_on(fork(arguments))
}

async fn fork(arguments: &Arguments) -> Result<()> {
    let Arguments { address, namespace, snapshotter, key, new } = arguments;
    let failed = |error: tonic::transport::Error| {
        let address = vfscale::Escaped::new(address);
        Refusal::new(
            Code::Unavailable,
            format!("containerd at {address} can't be reached: {error}"),
        )
    };
    let endpoint =
        Endpoint::from_shared(format!("unix://{}", address.display())).map_err(failed)?;
    let mut containerd = Grpc::new(endpoint.connect().await.map_err(failed)?);
    let stat = Key { snapshotter: snapshotter.clone(), key: key.clone() };
    let stat: Stat = call(&mut containerd, namespace, "Stat", stat).await?;
    let parent = stat.info.unwrap_or_default().parent;
    let now = Timestamp::from(SystemTime::now()).to_string();
    let labels =
        [(COPY_OF, key.clone()), (ROOT, now)].map(|(name, it)| (name.to_owned(), it)).into();
    let begin = Begin { snapshotter: snapshotter.clone(), key: new.clone(), parent, labels };
    let _: Mounts = call(&mut containerd, namespace, "Prepare", begin).await?;
    Ok(())
}

/// Calls containerd in a namespace.
async fn call<Q, A>(
    containerd: &mut Grpc<Channel>,
    namespace: &str,
    name: &str,
    question: Q,
) -> Result<A>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    let refused = |status: Status| Refusal::new(status.code(), status.message());
    let invalid = || Refusal::new(Code::InvalidArgument, format!("{namespace}: no namespace"));
    let mut request = Request::new(question);
    let value = MetadataValue::try_from(namespace).map_err(|_| invalid())?;
    request.metadata_mut().insert("containerd-namespace", value);
    containerd.ready().await.map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))?;
    let path = PathAndQuery::try_from(format!("/{SERVICE}/{name}")).map_err(|_| invalid())?;
    let answer = containerd.unary(request, path, ProstCodec::<Q, A>::default()).await;
    answer.map(tonic::Response::into_inner).map_err(refused)
}
