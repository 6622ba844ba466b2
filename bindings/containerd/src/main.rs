//! `vfscale-snapshotter`: layers of containers as branches of an image, for containerd.
//!
//! Containerd starts containers on *snapshots*, and unpacks each layer of an image into one. Here a
//! committed snapshot is a read-only branch of a pool, which Linux reads in place by a view, and an
//! active one an overlay above that.
//!
//! | module | contents |
//! | --- | --- |
//! | `api` | the messages of the service |
//! | `service` | the service |
//! | `snapshots` | snapshots as branches |
//! | `layers` | views that are mounted, and upper layers |
//! | `record` | snapshots as they are written down |
//! | `fork` | `vfscale-snapshotter fork`, by containerd |
//! | `refusal` | errors of calls |

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Code;
use tonic::transport::Server as Transport;
use vfscale_command::say;

mod api;
mod fork;
mod layers;
mod record;
mod refusal;
mod service;
mod snapshots;

use refusal::{Refusal, Result};
use service::Server;
use snapshots::Snapshots;

/// Keep the layers of containers as branches of vfscale, for containerd
///
/// Containerd finds it as a proxy plugin: in its configuration,
///
///   [proxy_plugins.vfscale]
///     type = "snapshot"
///     address = "/run/vfscale-snapshotter.sock"
///
/// Then `ctr run --snapshotter vfscale ...` and others use it.
#[derive(Debug, Parser)]
#[command(name = "vfscale-snapshotter", version, verbatim_doc_comment)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve containerd until SIGTERM; containers go on then
    Serve(Serve),
    /// Fork the file system of a container that may run: make a snapshot that begins with its files
    Fork(fork::Arguments),
}

#[derive(Debug, Args)]
struct Serve {
    /// The socket, as in the configuration of containerd
    #[arg(long, value_name = "SOCKET", default_value = "/run/vfscale-snapshotter.sock")]
    socket: PathBuf,

    /// The directory for views and for what containers write, on ext4, XFS or btrfs
    #[arg(long, value_name = "DIR", default_value = "/var/lib/vfscale-snapshotter")]
    root: PathBuf,

    /// The image of the pool, made if it is missing [default: disk.vfs in the directory]
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,

    /// The size of the image that is made; it is sparse
    #[arg(long, value_name = "BYTES", default_value = "64G",
          value_parser = vfscale::options::parse_bytes)]
    size: u64,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Serve(serve) => start(&serve),
        Command::Fork(fork) => fork::run(&fork),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            say(format_args!("vfscale-snapshotter: {refusal}"));
            ExitCode::FAILURE
        }
    }
}

/// Serves until a signal comes.
fn start(serve: &Serve) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::new(Code::PermissionDenied, "only root can mount views"));
    }
    let image = serve.image.clone().unwrap_or_else(|| serve.root.join("disk.vfs"));
    let snapshots = Arc::new(Snapshots::open(&serve.root, &image, serve.size)?);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(Refusal::at(Path::new("threads")))?;
    let served = runtime.block_on(listen(&serve.socket, Server(Arc::clone(&snapshots))));
    // Calls that are under way end first.
    drop(runtime);
    let removed = fs::remove_file(&serve.socket).map_err(Refusal::at(&serve.socket));
    if let Some(snapshots) = Arc::into_inner(snapshots) {
        snapshots.close()?;
    }
    served.and(removed)
}

async fn listen(socket: &Path, server: Server) -> Result<()> {
    let failed = Refusal::at(socket);
    if fs::symlink_metadata(socket).is_ok_and(|it| it.file_type().is_socket()) {
        // The image is this process's alone: so one that is gone has left it.
        fs::remove_file(socket).map_err(&failed)?;
    }
    let listener = UnixListener::bind(socket).map_err(&failed)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600)).map_err(&failed)?;
    let mut ended = signal(SignalKind::terminate()).map_err(&failed)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(&failed)?;
    let end = async move {
        tokio::select! {
            _ = ended.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    let serving = Transport::builder().add_service(server);
    let served = serving.serve_with_incoming_shutdown(UnixListenerStream::new(listener), end);
    served.await.map_err(|error| Refusal::new(Code::Internal, error.to_string()))
}
