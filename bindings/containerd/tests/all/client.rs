//! The program on an ext4, and calls of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use vfscale_harness::wait_until;

use crate::api::{Begin, Commit, Key, List, Listed, Mount, Mounts, SERVICE, Stat, Update, Usage};

/// The label that names the snapshot to be copied.
pub(crate) const COPY_OF: &str = "containerd.io/snapshot/vfscale.copy-of";

/// Returns whether views can be mounted here; says so if not.
pub(crate) fn can_mount() -> bool {
    let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let can = rustix::process::geteuid().is_root()
        && ["erofs", "overlay", "ext4"].iter().all(|name| systems.contains(name))
        && Path::new("/dev/loop-control").exists();
    if !can {
        println!(
            "######## SKIPPED: snapshots: no root, loop devices, EROFS, overlayfs or ext4 here"
        );
    }
    can
}

/// Runs a command, which must succeed.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// An ext4 with a root of the snapshotter, which serves.
pub(crate) struct Snapshotter {
    dir: TempDir,
    process: Child,
    runtime: Runtime,
    client: Grpc<Channel>,
}

impl Snapshotter {
    pub(crate) fn start() -> Self {
        Self::with(1 << 30)
    }

    /// Starts it on an ext4 of a size in bytes.
    pub(crate) fn with(bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (disk, mounted) = (dir.path().join("disk.ext4"), dir.path().join("ext4"));
        fs::File::create(&disk).unwrap().set_len(bytes).unwrap();
        fs::create_dir(&mounted).unwrap();
        run("mkfs.ext4", &["-q", "-F", disk.to_str().unwrap()]);
        run("mount", &["-o", "loop", disk.to_str().unwrap(), mounted.to_str().unwrap()]);
        let runtime = Runtime::new().unwrap();
        let (process, client) = serve(&dir, &runtime);
        Self { dir, process, runtime, client }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("ext4/root")
    }

    /// Ends the program by a signal.
    pub(crate) fn end(&mut self, signal: rustix::process::Signal) {
        // A test may have ended it already.
        let _ = rustix::process::kill_process(self.process(), signal);
        self.process.wait().unwrap();
    }

    pub(crate) fn process(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.process)
    }

    pub(crate) fn start_again(&mut self) {
        (self.process, self.client) = serve(&self.dir, &self.runtime);
    }

    /// Unmounts all views, as a start of the machine does.
    pub(crate) fn unmount_views(&self) {
        for entry in fs::read_dir(self.root().join("mounts")).unwrap() {
            run("umount", &[entry.unwrap().path().to_str().unwrap()]);
        }
    }

    /// Returns the names of the branches, while the program does not run.
    pub(crate) fn branches(&self) -> Vec<String> {
        let pool = vfscale::pool(self.root().join("disk.vfs")).open().unwrap();
        let names = pool.branches().into_iter().map(|it| it.name).collect();
        pool.close().unwrap();
        names
    }

    fn call<Q, A>(&self, name: &str, question: Q) -> Result<A, Status>
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut client = self.client.clone();
        self.runtime.block_on(async move {
            client.ready().await.unwrap();
            let path = format!("/{SERVICE}/{name}").try_into().unwrap();
            let answer = client.unary(tonic::Request::new(question), path, ProstCodec::default());
            Ok(answer.await?.into_inner())
        })
    }

    fn begin(&self, call: &str, key: &str, parent: &str) -> Result<Mount, Status> {
        self.begin_with(call, (key, parent), BTreeMap::new())
    }

    pub(crate) fn begin_with(
        &self,
        call: &str,
        (key, parent): (&str, &str),
        labels: BTreeMap<String, String>,
    ) -> Result<Mount, Status> {
        let (key, parent, snapshotter) = (key.to_owned(), parent.to_owned(), String::new());
        let mounts: Mounts = self.call(call, Begin { snapshotter, key, parent, labels })?;
        Ok(mounts.mounts[0].clone())
    }

    pub(crate) fn prepare(&self, key: &str, parent: &str) -> Result<Mount, Status> {
        self.begin("Prepare", key, parent)
    }

    pub(crate) fn view(&self, key: &str, parent: &str) -> Result<Mount, Status> {
        self.begin("View", key, parent)
    }

    fn key<A: prost::Message + Default + 'static>(
        &self,
        call: &str,
        key: &str,
    ) -> Result<A, Status> {
        self.call(call, Key { snapshotter: String::new(), key: key.to_owned() })
    }

    pub(crate) fn mounts(&self, key: &str) -> Result<Mount, Status> {
        self.key("Mounts", key).map(|it: Mounts| it.mounts[0].clone())
    }

    pub(crate) fn remove(&self, key: &str) -> Result<(), Status> {
        self.key("Remove", key)
    }

    pub(crate) fn clean_up(&self) -> Result<(), Status> {
        self.key("Cleanup", "")
    }

    pub(crate) fn stat(&self, key: &str) -> Result<crate::api::Info, Status> {
        self.key("Stat", key).map(|it: Stat| it.info.unwrap())
    }

    pub(crate) fn usage(&self, key: &str) -> Result<Usage, Status> {
        self.key("Usage", key)
    }

    pub(crate) fn commit(&self, name: &str, key: &str) -> Result<(), Status> {
        let (name, key, labels) = (name.to_owned(), key.to_owned(), BTreeMap::new());
        self.call("Commit", Commit { snapshotter: String::new(), name, key, labels })
    }

    pub(crate) fn update(&self, update: Update) -> Result<crate::api::Info, Status> {
        self.call("Update", update).map(|it: Stat| it.info.unwrap())
    }

    pub(crate) fn list(&self, filters: Vec<String>) -> Result<Vec<String>, Status> {
        let mut client = self.client.clone();
        self.runtime.block_on(async move {
            client.ready().await.unwrap();
            let path = format!("/{SERVICE}/List").try_into().unwrap();
            let list = tonic::Request::new(List { snapshotter: String::new(), filters });
            let codec = ProstCodec::<List, Listed>::default();
            let mut parts = client.server_streaming(list, path, codec).await?.into_inner();
            let mut names = Vec::new();
            while let Some(part) = parts.message().await? {
                names.extend(part.info.into_iter().map(|it| it.name));
            }
            Ok(names)
        })
    }

    /// Mounts what a call has answered, has `act` use it, and unmounts it.
    pub(crate) fn within<T>(&self, mount: &Mount, act: impl FnOnce(&Path) -> T) -> T {
        within(mount, act)
    }
}

/// Mounts what a call has answered, has `act` use it, and unmounts it.
pub(crate) fn within<T>(mount: &Mount, act: impl FnOnce(&Path) -> T) -> T {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    let options = mount.options.join(",");
    match &*mount.kind {
        "bind" => run("mount", &["--bind", "-o", "ro", &mount.source, at]),
        kind => run("mount", &["-t", kind, &mount.source, at, "-o", &options]),
    };
    let done = act(dir.path());
    // A process that another thread starts has the files of this one for a moment.
    wait_until("the end of the mount", || {
        rustix::mount::unmount(at, rustix::mount::UnmountFlags::empty()).is_ok()
    });
    done
}

impl Drop for Snapshotter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let views = fs::read_dir(self.root().join("mounts")).into_iter().flatten().flatten();
        let mounted = views.map(|it| it.path()).chain([self.dir.path().join("ext4")]);
        mounted.for_each(|dir| _ = Command::new("umount").arg(dir).stderr(Stdio::null()).status());
    }
}

/// Starts the program, and connects to it.
fn serve(dir: &TempDir, runtime: &Runtime) -> (Child, Grpc<Channel>) {
    let (socket, root) = (dir.path().join("socket"), dir.path().join("ext4/root"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_vfscale-snapshotter"));
    command.arg("serve").arg("--socket").arg(&socket).arg("--root").arg(root);
    let process = command.args(["--size", "512M"]).spawn().unwrap();
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    let mut channel = None;
    wait_until("the socket", || {
        channel = runtime.block_on(endpoint.connect()).ok();
        channel.is_some()
    });
    (process, Grpc::new(channel.unwrap()))
}

/// Fails unless a call was refused with a code.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code) {
    assert_eq!(answer.unwrap_err().code(), code);
}
