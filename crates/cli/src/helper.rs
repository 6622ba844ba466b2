//! The names by which `mount(8)`, `umount(8)`, `mkfs(8)` and `fsck(8)` call the command, with the
//! options that they pass: `mount.vfscale`, `umount.vfscale`, `mkfs.vfscale`, `fsck.vfscale`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args, Command, CommandFactory, Parser};
use vfscale_command::say;
use vfscale_diskfs::copies;

use crate::args::{self, Cli};
use crate::device::{self, CephArgs, open};
use crate::error::Failure;
use crate::mount;
use crate::options;
use crate::umount;
use crate::volume::{fsck, make};

/// Exit status of `mount(8)`: the command line is invalid.
const MOUNT_USAGE: u8 = 1;
/// Exit status of `mount(8)`: the mount failed.
const MOUNT_FAILED: u8 = 32;
/// Sources that stand for a new file system in memory.
const MEMORY: [&str; 2] = ["memory", "none"];

/// A helper program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    Mount,
    Umount,
    Mkfs,
    Fsck,
}

impl Helper {
    /// Returns the helper by whose name the program was called, if it was.
    pub(crate) fn called(program: &OsStr) -> Option<Helper> {
        match Path::new(program).file_name()?.to_str()? {
            "mount.vfscale" | "mount.fuse.vfscale" => Some(Helper::Mount),
            "umount.vfscale" | "umount.fuse.vfscale" => Some(Helper::Umount),
            "mkfs.vfscale" => Some(Helper::Mkfs),
            "fsck.vfscale" => Some(Helper::Fsck),
            _ => None,
        }
    }

    /// Returns the definitions of the helpers' command lines, for their manual pages.
    pub(crate) fn commands() -> [Command; 4] {
        let mounts = (MountHelper::command(), UmountHelper::command());
        [mounts.0, mounts.1, MkfsHelper::command(), FsckHelper::command()]
    }

    /// Runs the helper, prints what fails, and returns the exit status that its caller defines.
    pub(crate) fn run(self, arguments: &[OsString]) -> ExitCode {
        let outcome = match self {
            Helper::Mount => MountHelper::try_parse_from(arguments).map(|it| it.run()),
            Helper::Umount => UmountHelper::try_parse_from(arguments).map(|it| it.run()),
            Helper::Mkfs => MkfsHelper::try_parse_from(arguments).map(|it| it.run()),
            Helper::Fsck => {
                FsckHelper::try_parse_from(with_descriptors(arguments)).map(|it| it.run())
            }
        };
        let usage = match self {
            Helper::Mount | Helper::Umount => MOUNT_USAGE,
            Helper::Mkfs => 1,
            Helper::Fsck => fsck::USAGE,
        };
        match outcome {
            Err(error) => crate::refused(&error, usage),
            Ok(Ok(code)) => code,
            Ok(Err(error)) => {
                say(format_args!("{}: {error}", self.name()));
                match (self, error) {
                    (_, Failure::Usage(_)) => ExitCode::from(usage),
                    (Helper::Mount | Helper::Umount, _) => ExitCode::from(MOUNT_FAILED),
                    (Helper::Mkfs, _) => ExitCode::FAILURE,
                    (Helper::Fsck, _) => ExitCode::from(fsck::OPERATIONAL),
                }
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Helper::Mount => "mount.vfscale",
            Helper::Umount => "umount.vfscale",
            Helper::Mkfs => "mkfs.vfscale",
            Helper::Fsck => "fsck.vfscale",
        }
    }
}

/// The options that mount(8) and umount(8) pass on, and that need nothing to be done.
#[derive(Debug, Args)]
struct PassedOn {
    /// Accepted without effect, since mount(8) and umount(8) pass it on
    #[arg(short = 'n', action = ArgAction::Count)]
    no_mtab: u8,

    /// Say how the file system is served, when mounting
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,

    /// The namespace to work in, which the caller has entered
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<OsString>,

    /// The type: vfscale, or fuse.vfscale
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<OsString>,
}

/// Mount a volume, or a file system in memory, for mount(8)
///
/// mount(8) calls this program for `mount -t vfscale SOURCE DIR` and for lines of fstab(5) with the
/// type vfscale. It returns as soon as the file system is mounted, and serves it in the background
/// until it is unmounted. vfscale-mount(1) describes the options.
///
/// SOURCE is the image of a volume, a block device, or an image of Ceph RBD, named
/// rbd:POOL[/NAMESPACE]/IMAGE, with `-o ceph_conf=FILE,id=USER,_netdev`. `memory` and `none` stand
/// for a new memory file system; an image of such a name is `./none`. Without a SOURCE the file
/// system is in memory, too.
///
/// The exit status is that of mount(8): 0, mounted; 1, the command line is invalid; 32, the mount
/// failed.
///
/// Examples: mount -t vfscale /srv/disk.vfs /mnt/data; mount -t vfscale -o size=1G none
/// /mnt/scratch
#[derive(Debug, Parser)]
#[command(name = "mount.vfscale", version)]
#[command(override_usage = "mount.vfscale [OPTIONS] [SOURCE] DIR")]
pub(crate) struct MountHelper {
    /// The image of a volume, a block device, or `memory` for a memory file system; then the
    /// directory to mount at. A directory alone gets a memory file system
    #[arg(value_names = ["SOURCE", "DIR"], required = true, num_args = 1..=2)]
    places: Vec<OsString>,

    /// Options of mount(8) and vfscale-mount(1), separated by commas
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<OsString>,

    /// Check the command line, and mount nothing
    #[arg(short)]
    fake: bool,

    /// Accepted without effect, since mount(8) passes it on
    #[arg(short = 's', action = ArgAction::Count)]
    sloppy: u8,

    #[command(flatten)]
    passed: PassedOn,
}

impl MountHelper {
    fn run(self) -> Result<ExitCode, Failure> {
        let arguments = self.as_command()?;
        let fails = |e: clap::Error| Failure::Usage(e.render().to_string());
        let cli = args::parse(&arguments).map_err(fails)?;
        cli.use_ceph();
        let args::Command::Mount(args) = cli.command else {
            return Err(Failure::Usage("no arguments of a mount".into()));
        };
        if self.fake {
            return Ok(ExitCode::SUCCESS);
        }
        let code = mount::mount(args, &arguments, args::parse_mount)?;
        // The background process has printed why it failed.
        let misused = Failure::Usage(String::new()).exit_code();
        Ok(match code {
            code if code == ExitCode::SUCCESS => code,
            code if code == misused => ExitCode::from(MOUNT_USAGE),
            _ => ExitCode::from(MOUNT_FAILED),
        })
    }

    /// Returns the command line of `vfscale mount` that does the same.
    fn as_command(&self) -> Result<Vec<OsString>, Failure> {
        let (source, dir) = match &self.places[..] {
            [source, dir] => (Some(source), dir),
            rest => (None, &rest[0]),
        };
        let volume = match source {
            // The source shows what is mounted, and is not opened.
            Some(source) if self.remounts() => path_of(source),
            Some(source) if MEMORY.iter().any(|name| source == name) => None,
            Some(source) => Some(path_of(source).ok_or_else(|| Failure::Usage(no_source(source)))?),
            None => None,
        };
        let mut command: Vec<OsString> =
            ["vfscale", "mount", "--background"].map(Into::into).into();
        if volume.is_none() {
            command.push("--memory".into());
        }
        if self.passed.verbose > 0 {
            command.push("--verbose".into());
        }
        if let (Some(source), None) = (source, &volume) {
            let mut named = OsString::from("fsname=");
            named.push(escape_commas(source));
            command.extend([OsString::from("-o"), named]);
        }
        for options in &self.options {
            command.extend([OsString::from("-o"), options.clone()]);
        }
        command.extend(volume);
        command.push(dir.clone());
        Ok(command)
    }

    /// Returns whether the options ask to change a mount. Wrong options are reported later.
    fn remounts(&self) -> bool {
        let parsed = |text: &OsString| options::parse(text.to_str()?).ok();
        self.options.iter().filter_map(parsed).any(|options| options.remount)
    }
}

/// Returns the path of the image or device that a source names: a source with a `/`, whether it
/// exists or not, and the name of a file in the working directory.
fn path_of(source: &OsStr) -> Option<OsString> {
    if source.as_bytes().contains(&b'/') {
        return Some(source.to_owned());
    }
    let here = Path::new(".").join(source);
    let exists = !source.is_empty() && here.try_exists().unwrap_or(true);
    exists.then(|| here.into_os_string())
}

/// Says why a source can't be mounted, and what to write instead.
fn no_source(source: &OsStr) -> String {
    format!(
        "{}: no such image or device; for a file system in memory the source is `memory` or \
         `none` (its contents are lost at the unmount)",
        source.display()
    )
}

/// Escapes the commas of a source, which would end the option that holds it.
fn escape_commas(name: &OsStr) -> OsString {
    let mut escaped = Vec::new();
    for &b in name.as_bytes() {
        if b == b',' || b == b'\\' {
            escaped.push(b'\\');
        }
        escaped.push(b);
    }
    OsStr::from_bytes(&escaped).to_owned()
}

/// Unmount a volume, and wait until it is closed, for umount(8)
///
/// umount(8) calls this program by the name umount.fuse.vfscale. It returns when the server has
/// closed the volume, or after a minute. vfscale-umount(1) says more.
///
/// The exit status is that of umount(8): 0, unmounted; 1, the command line is invalid; 32, the
/// unmount failed, or the volume was not closed, or not in time.
#[derive(Debug, Parser)]
#[command(name = "umount.vfscale", version)]
pub(crate) struct UmountHelper {
    /// Unmount though the mount is in use
    #[arg(short)]
    force: bool,

    /// Detach the mount now, and let its present users keep it. Does not wait
    #[arg(short)]
    lazy: bool,

    /// If it is in use, remount it read-only
    #[arg(short)]
    read_only: bool,

    #[command(flatten)]
    _passed: PassedOn,

    #[command(flatten)]
    ceph: CephArgs,

    /// The directory of the mount
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl UmountHelper {
    fn run(self) -> Result<ExitCode, Failure> {
        device::use_ceph(&self.ceph, None);
        let args = umount::UmountArgs {
            force: self.force,
            lazy: self.lazy,
            timeout: None,
            dirs: vec![self.dir.clone()],
        };
        match umount::umount(&args) {
            Err(Failure::Unmount(_, e))
                if self.read_only && e.kind() == io::ErrorKind::ResourceBusy =>
            {
                mount::remount_read_only(&self.dir)
            }
            done => done,
        }
    }
}

/// Make a volume in an image file or on a block device
///
/// mkfs(8) calls this program for `mkfs -t vfscale DEVICE`. A device that holds a known file system
/// or partition table is not overwritten without --force.
///
/// Examples: mkfs -t vfscale -L music /dev/sdb1; mkfs.vfscale --size 10G disk.vfs
#[derive(Debug, Parser)]
#[command(name = "mkfs.vfscale", version)]
pub(crate) struct MkfsHelper {
    #[command(flatten)]
    args: make::MkfsArgs,

    #[command(flatten)]
    ceph: CephArgs,

    /// Has no effect: mkfs(8) passes it on
    #[arg(short = 'v', hide = true)]
    verbose: bool,
}

impl MkfsHelper {
    fn run(&self) -> Result<ExitCode, Failure> {
        device::use_ceph(&self.ceph, None);
        make::mkfs(&self.args)
    }
}

/// Check a volume for damage, and repair it
///
/// fsck(8) calls this program for a device or a line of fstab(5) with the type vfscale. Without
/// options it checks everything and writes nothing, as with -n.
///
/// A volume that was not unmounted is not damaged: its log is replayed by the next mount, or in
/// memory by a check. So -a and -p, which are for the start of a machine, take no time with most
/// volumes: they check and repair only those on which a mount has met damage and stopped, or whose
/// repair was interrupted.
///
/// vfscale-fsck(1) describes findings and repairs, and has further options.
///
/// The exit status is a sum, as fsck(8) defines it: 0, no finding; 1, all findings repaired; 4,
/// findings left; 8, the check could not be made; 16, the command line is invalid.
#[derive(Debug, Parser)]
#[command(name = "fsck.vfscale", version)]
pub(crate) struct FsckHelper {
    /// Check and repair without questions if a mount has reported damage; otherwise do nothing
    #[arg(short = 'a', visible_short_alias = 'p')]
    automatic: bool,

    /// Check everything, and repair all findings without questions
    #[arg(short = 'y', conflicts_with = "automatic")]
    yes: bool,

    /// Check everything, and write nothing
    #[arg(short = 'n', conflicts_with_all = ["automatic", "yes"])]
    no: bool,

    /// With -a or -p: check and repair in any case
    #[arg(short = 'f')]
    force: bool,

    /// Write progress to a descriptor, as lines `pass current total device`. With 0 or without a
    /// descriptor it is a bar, if standard error is a terminal. Negative ones, whose lines a
    /// signal starts, are refused
    #[arg(short = 'C', value_name = "FD", num_args = 0..=1, require_equals = true,
          default_missing_value = "0")]
    progress: Option<u32>,

    /// Has no effect: the outcome is always printed
    #[arg(short = 'v')]
    verbose: bool,

    /// Is refused: no questions are asked. Look with -n, and repair with -y
    #[arg(short = 'r')]
    interactive: bool,

    /// The device of an external log
    #[arg(long, value_name = "PATH")]
    log_device: Option<PathBuf>,

    #[command(flatten)]
    ceph: CephArgs,

    /// The image file or block device, or `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]`
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
}

impl FsckHelper {
    fn run(&self) -> Result<ExitCode, Failure> {
        device::use_ceph(&self.ceph, None);
        if self.interactive {
            let why = "-r: no questions are asked; -n shows the findings, -y repairs them";
            return Err(Failure::Usage(why.into()));
        }
        if self.automatic && !self.force && !self.is_suspect()? {
            let device = self.device.display();
            println!("{device}: no mount has met damage; not checked (-f checks nevertheless)");
            return Ok(ExitCode::SUCCESS);
        }
        fsck::fsck(&fsck::FsckArgs {
            branch: None,
            repair: self.automatic || self.yes,
            discard_log: false,
            give_up_unreadable: false,
            dry_run: self.no,
            json: false,
            quiet: self.progress.is_none(),
            progress_fd: self.progress.filter(|descriptor| *descriptor != 0),
            findings: fsck::FINDINGS,
            log_device: self.log_device.clone(),
            image: self.device.clone(),
        })
    }

    /// Returns whether the volume needs a check: a mount has stopped, a repair was interrupted, or
    /// no superblock can be read.
    fn is_suspect(&self) -> Result<bool, Failure> {
        let device = open(&self.device, true)?;
        Ok(copies::read(&*device).map_or(true, |found| {
            let superblock = &found.superblock;
            superblock.stopped.is_some() || superblock.features.needs_repair()
        }))
    }
}

/// Returns the arguments with `-C5` and `-C 5` in the form `-C=5`. What follows a `-C` and is no
/// number is the next argument.
fn with_descriptors(arguments: &[OsString]) -> Vec<OsString> {
    let is_number = |text: &[u8]| {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    };
    let joined = |descriptor: &[u8]| OsString::from_vec([b"-C=", descriptor].concat());
    let mut kept: Vec<OsString> = Vec::new();
    for argument in arguments {
        let bytes = argument.as_bytes();
        match (bytes.strip_prefix(b"-C"), kept.last_mut()) {
            (Some(descriptor), _) if is_number(descriptor) => kept.push(joined(descriptor)),
            (None, Some(last)) if *last == "-C" && is_number(bytes) => *last = joined(bytes),
            _ => kept.push(argument.clone()),
        }
    }
    kept
}

/// Writes the manual pages and completions of the command, and the pages of its helpers.
pub(crate) fn manual(dir: &Path) -> Result<ExitCode, Failure> {
    use vfscale_command::manual::{self, Manual};
    let main = Cli::command();
    let helpers = Helper::commands();
    let see_also = &["vfscale(1)", "vfscale(7)"];
    // The program that measures has its own page of this name.
    let without = &["vfscale-bench"];
    let options = &options::described()[..];
    let mut manuals = vec![Manual { command: &main, section: 1, without, see_also, options }];
    let of_helper = |command| Manual { command, section: 8, without: &[], see_also, options: &[] };
    manuals.extend(helpers.iter().map(of_helper));
    manual::write(dir, &manuals).map_err(|e| Failure::Write(e.path, e.error))?;
    manual::put(dir.join("man/man7/vfscale.7"), include_bytes!("../man/vfscale.7"))
        .map_err(|e| Failure::Write(e.path, e.error))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests;
