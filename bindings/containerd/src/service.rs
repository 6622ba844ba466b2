//! The service: each call of containerd is one of [`Snapshots`], on a thread that may block.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request as HttpRequest, Response as HttpResponse};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use crate::api::{Begin, Commit, Info, Key, List, Listed, Mounts, SERVICE, Stat, Update, Usage};
use crate::refusal::{Refusal, Result};
use crate::snapshots::Snapshots;

/// The most snapshots of a part of a list.
const LISTED_MAX: usize = 100;

type Answer =
    Pin<Box<dyn Future<Output = std::result::Result<HttpResponse<Body>, Infallible>> + Send>>;

/// The service of the snapshots of a pool.
#[derive(Clone)]
pub(crate) struct Server(pub(crate) Arc<Snapshots>);

impl NamedService for Server {
    const NAME: &'static str = SERVICE;
}

impl Server {
    /// Answers a call by `act`.
    fn answer<Q, A>(
        &self,
        request: HttpRequest<Body>,
        act: fn(&Snapshots, Q) -> Result<A>,
    ) -> Answer
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let snapshots = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = service_fn(move |request: Request<Q>| {
                let snapshots = Arc::clone(&snapshots);
                blocking(move || act(&snapshots, request.into_inner()))
            });
            Ok(Grpc::new(ProstCodec::<A, Q>::default()).unary(answer, request).await)
        })
    }

    fn list(&self, request: HttpRequest<Body>) -> Answer {
        let snapshots = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = service_fn(move |request: Request<List>| {
                let listed = listed(&snapshots, &request.into_inner());
                std::future::ready(listed.map(|parts| Response::new(tokio_stream::iter(parts))))
            });
            let mut grpc = Grpc::new(ProstCodec::<Listed, List>::default());
            Ok(grpc.server_streaming(answer, request).await)
        })
    }
}

type Part = std::result::Result<Listed, Status>;

fn listed(snapshots: &Snapshots, list: &List) -> std::result::Result<Vec<Part>, Status> {
    if !list.filters.is_empty() {
        return Err(Status::unimplemented("containerd filters snapshots itself"));
    }
    let part = |part: &[Info]| Ok(Listed { info: part.to_vec() });
    Ok(snapshots.list().chunks(LISTED_MAX).map(part).collect())
}

/// Has a thread that may block answer.
async fn blocking<A: Send + 'static>(
    act: impl FnOnce() -> Result<A> + Send + 'static,
) -> std::result::Result<Response<A>, Status> {
    let answered = tokio::task::spawn_blocking(act).await;
    let failed = |error| Refusal::new(Code::Internal, format!("{error}"));
    Ok(Response::new(answered.map_err(failed).and_then(|it| it)?))
}

impl Service<HttpRequest<Body>> for Server {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Answer {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default();
        match name {
            "Prepare" => self.answer(request, |it, Begin { key, parent, labels, .. }| {
                it.begin((&key, &parent), labels, false).map(|mounts| Mounts { mounts })
            }),
            "View" => self.answer(request, |it, Begin { key, parent, labels, .. }| {
                it.begin((&key, &parent), labels, true).map(|mounts| Mounts { mounts })
            }),
            "Mounts" => self.answer(request, |it, Key { key, .. }| {
                it.mounts(&key).map(|mounts| Mounts { mounts })
            }),
            "Commit" => self.answer(request, |it, Commit { name, key, labels, .. }| {
                it.commit((&name, &key), labels)
            }),
            "Remove" => self.answer(request, |it, Key { key, .. }| it.remove(&key)),
            "Stat" => self.answer(request, |it, Key { key, .. }| {
                it.stat(&key).map(|info| Stat { info: Some(info) })
            }),
            "Update" => self.answer(request, |it, Update { info, update_mask, .. }| {
                let paths = update_mask.unwrap_or_default().paths;
                it.update(&info.unwrap_or_default(), &paths).map(|info| Stat { info: Some(info) })
            }),
            "List" => self.list(request),
            "Usage" => self.answer(request, |it, Key { key, .. }| {
                it.usage(&key).map(|(size, inodes)| Usage { size, inodes })
            }),
            "Cleanup" => self.answer(request, |it, Key { .. }| it.clean_up()),
            _ => Box::pin(async { Ok(Status::unimplemented("no such call").into_http()) }),
        }
    }
}
