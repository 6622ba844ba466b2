//! Modes, sizes of images, and the options of mounts: after `-o`, and long ones.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use vfscale::block::Ceph;
use vfscale::posix::MountFlags;
use vfscale_command::Size;
use vfscale_diskfs::{OnError, OnErrorError};
use vfscale_fuse::control::Growth;
use vfscale_fuse::{Polling, Syncing, Transport, Xattrs};

/// Parses the size of an image, which can't be a share of the memory.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    match text.parse()? {
        Size::Bytes(bytes) if bytes >= 4096 => Ok(bytes / 4096 * 4096),
        _ => Err(format!("`{text}` is not the size of an image: write it as 64M or 10G")),
    }
}

/// Parses the new size of an image, or by how much it grows.
pub(crate) fn parse_growth(text: &str) -> Result<Growth, String> {
    match text.strip_prefix('+') {
        Some(more) => parse_bytes(more).map(Growth::By),
        None => parse_bytes(text).map(Growth::To),
    }
}

/// Parses a time in seconds, which may have a fraction.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|s| (0.01..=86_400.0).contains(s));
    let seconds =
        seconds.ok_or_else(|| format!("`{text}` is not a time: 0.01 to 86400 seconds"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses a number of worker threads.
pub(crate) fn parse_threads(text: &str) -> Result<u16, String> {
    let threads = text.parse().ok().filter(|threads| (1..=1024).contains(threads));
    threads.ok_or_else(|| format!("`{text}` is not a number of threads: 1 to 1024"))
}

/// Parses when workers poll.
pub(crate) fn parse_polling(text: &str) -> Result<Polling, String> {
    match text {
        "auto" => Ok(Polling::Auto),
        "never" => Ok(Polling::Never),
        _ => Err(format!("`{text}`: write auto or never")),
    }
}

/// Parses permissions in octal, with or without a leading zero.
pub(crate) fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("`{text}` is not a mode: write it in octal, as 755 or 1777")),
    }
}

/// Parses the number of a user or group. The largest number is invalid: `chown(2)` leaves an owner
/// unchanged for it.
pub(crate) fn parse_id(text: &str) -> Result<u32, String> {
    let id = text.parse().ok().filter(|id| *id != u32::MAX);
    id.ok_or_else(|| format!("`{text}` is not the number of a user or group"))
}

/// Parses a number of inodes.
fn parse_inodes(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a number".into())
}

/// Parses the numbers of a user and a group, with a colon between them.
pub(crate) fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let both = text.split_once(':').map(|(uid, gid)| (parse_id(uid), parse_id(gid)));
    match both {
        Some((Ok(uid), Ok(gid))) => Ok((uid, gid)),
        _ => Err(format!("`{text}` is no owner: write the numbers of user and group, as 1000:100")),
    }
}

/// Parses the value of `noxattr`.
pub(crate) fn parse_noxattr(text: &str) -> Result<Xattrs, String> {
    match text {
        "" => Ok(Xattrs::Refused),
        "force" => Ok(Xattrs::Ignored),
        _ => Err(format!("`{text}`: write noxattr or noxattr=force")),
    }
}

/// Parses whether something is so.
fn parse_yes(text: &str) -> Result<bool, String> {
    match text {
        "" | "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("`{text}`: write true or false")),
    }
}

/// Returns the effective user and group of this process.
pub(crate) fn caller() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Options given with `-o`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountOptions {
    set: MountFlags,
    cleared: MountFlags,
    /// An option that only a volume has, if one is set.
    pub(crate) of_volumes: Option<&'static str>,
    pub(crate) remount: bool,
    /// Whether all changes are durable when their calls return, and whether those of names are.
    sync: Option<bool>,
    dirsync: bool,
    pub(crate) no_recovery: bool,
    pub(crate) auto_da_alloc: Option<bool>,
    pub(crate) discard: Option<bool>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) allow_other: Option<bool>,
    pub(crate) source: Option<String>,
    pub(crate) xattrs: Option<Xattrs>,
    pub(crate) size: Option<Size>,
    pub(crate) inodes: Option<u64>,
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) branch: Option<String>,
    pub(crate) log_device: Option<PathBuf>,
    pub(crate) ceph: Ceph,
    pub(crate) sync_interval: Option<Duration>,
    pub(crate) cache_size: Option<Size>,
    pub(crate) threads: Option<u16>,
    pub(crate) poll: Option<Polling>,
    pub(crate) transport: Option<Transport>,
    pub(crate) writeback: bool,
    pub(crate) chattr: bool,
    pub(crate) idmap: bool,
}

impl MountOptions {
    /// Returns `flags` with the changes that the options request.
    pub(crate) fn apply(&self, flags: MountFlags) -> MountFlags {
        (flags - self.cleared) | self.set
    }

    /// Returns whether the options forbid writing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.set.contains(MountFlags::RDONLY)
    }

    /// Returns which changes are durable when their calls return.
    pub(crate) fn syncing(&self) -> Syncing {
        match (self.sync, self.dirsync) {
            (Some(true), _) => Syncing::All,
            (_, true) => Syncing::Names,
            _ => Syncing::OnRequest,
        }
    }

    /// Refuses a remount that changes what [`syncing`](Self::syncing) returns: the kernel does not
    /// tell the server about it. `is_sync` and `is_dirsync` say how the mount is now.
    ///
    /// # Errors
    /// Returns a text that names the option.
    pub(crate) fn keep_syncing(&self, is_sync: bool, is_dirsync: bool) -> Result<(), String> {
        let wanted = match self.sync {
            Some(true) if !is_sync => "sync",
            Some(false) if is_sync => "async",
            _ if self.dirsync && !is_sync && !is_dirsync => "dirsync",
            _ => return Ok(()),
        };
        Err(format!("a remount can't set `{wanted}`: unmount, and mount with the option"))
    }

    /// Applies long options, which win over those after `-o`.
    pub(crate) fn apply_long(&mut self, long: &LongOptions) {
        for (at, value) in &long.0 {
            let applied = OPTIONS[*at].apply(self, value.as_deref());
            debug_assert_eq!(
                applied,
                Some(Ok(())),
                "the parser of the command line has checked it"
            );
        }
    }

    fn flag(&mut self, flag: MountFlags, on: bool) {
        self.set.set(flag, on);
        self.cleared.set(flag, !on);
    }

    /// Applies the options after one `-o`. Later ones win.
    ///
    /// # Errors
    /// Returns a text that names the invalid option.
    pub(crate) fn read(&mut self, text: &str) -> Result<(), String> {
        split(text).iter().try_for_each(|option| self.take(option))
    }

    /// Applies one option, as the table says.
    fn take(&mut self, option: &str) -> Result<(), String> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let named = OPTIONS.iter().filter(|row| row.name == name);
        if let Some(applied) = named.filter_map(|row| row.apply(self, value)).next() {
            let shown = |why| if value.is_some() { format!("{option}: {why}") } else { why };
            return applied.map_err(shown);
        }
        let ignored = if value.is_some() { IGNORED_VALUES } else { IGNORED_WORDS };
        if name.starts_with("x-") || ignored.contains(&name) {
            return Ok(());
        }
        Err(format!("mount option `{option}` is unknown"))
    }
}

/// An option: how it is written after `-o`, and perhaps as a long option, and what it does.
struct Row {
    name: &'static str,
    effect: Effect,
    of: Of,
    /// The long option, its value (none, `[OPTIONAL]` or `NEEDED`), and its help.
    long: Option<(&'static str, &'static str, &'static str)>,
}

/// The effect of an option.
enum Effect {
    /// A word sets or clears a flag of the mount.
    Flag(MountFlags, bool),
    /// A word sets an option.
    Word(fn(&mut MountOptions)),
    /// A word is known and can't be had, for a reason.
    Refused(&'static str),
    /// A name with a value sets an option.
    Value(fn(&mut MountOptions, &str) -> Result<(), String>),
}

/// The file systems that have an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    Volumes,
    Memory,
}

use Effect::{Flag, Refused, Value, Word};
use Of::{Memory, Volumes};

const fn row(name: &'static str, effect: Effect) -> Row {
    Row { name, effect, of: Of::All, long: None }
}

impl Row {
    const fn of(self, of: Of) -> Row {
        Row { of, ..self }
    }

    const fn long(self, name: &'static str, value: &'static str, help: &'static str) -> Row {
        Row { long: Some((name, value, help)), ..self }
    }

    /// Applies the option; `None` if it needs a value, or has none.
    fn apply(&self, options: &mut MountOptions, value: Option<&str>) -> Option<Result<(), String>> {
        match (&self.effect, value) {
            (Flag(flag, on), None) => options.flag(*flag, *on),
            (Word(set), None) => set(options),
            (Refused(why), None) => return Some(Err((*why).to_owned())),
            (Value(set), Some(value)) => {
                if let Err(why) = set(options, value) {
                    return Some(Err(why));
                }
            }
            _ => return None,
        }
        if self.of == Volumes {
            options.of_volumes.get_or_insert(self.name);
        }
        Some(Ok(()))
    }

    /// Returns the long option, whose id has underscores.
    fn argument(&'static self) -> Option<Arg> {
        let (name, value, help) = self.long?;
        let arg = Arg::new(name.replace('-', "_")).long(name).help(help);
        let arg = match self.of {
            Of::All => arg,
            Volumes => arg.conflicts_with("memory"),
            Memory => arg.requires("memory"),
        };
        if value.is_empty() {
            return Some(arg.action(ArgAction::SetTrue));
        }
        let check = |text: &str| {
            let applied = self.apply(&mut MountOptions::default(), Some(text));
            applied.unwrap_or(Ok(())).map(|()| text.to_owned())
        };
        let arg = arg.value_name(value.trim_matches(['[', ']'])).value_parser(check);
        Some(match value.starts_with('[') {
            true => arg.num_args(0..=1).require_equals(true).default_missing_value(""),
            false => arg,
        })
    }
}

/// The options, those after `-o` and the long ones. A new one is a row here, and a field that is
/// read where the file system is opened or mounted.
static OPTIONS: &[Row] = &[
    row("ro", Flag(MountFlags::RDONLY, true)).long(
        "read-only",
        "",
        "Write nothing to the volume, as `-o ro`. If it was not unmounted, its log is \
         replayed in memory; with `-o ro,norecovery` the log is ignored",
    ),
    row("rw", Flag(MountFlags::RDONLY, false)),
    row("nosuid", Flag(MountFlags::NOSUID, true)),
    row("suid", Flag(MountFlags::NOSUID, false)),
    row("nodev", Flag(MountFlags::NODEV, true)),
    row("dev", Flag(MountFlags::NODEV, false)),
    row("noexec", Flag(MountFlags::NOEXEC, true)),
    row("exec", Flag(MountFlags::NOEXEC, false)),
    row("nosymfollow", Flag(MountFlags::NOSYMFOLLOW, true)),
    row("symfollow", Flag(MountFlags::NOSYMFOLLOW, false)),
    row("noatime", Flag(MountFlags::NOATIME, true)),
    row("atime", Flag(MountFlags::NOATIME, false)),
    row("nodiratime", Flag(MountFlags::NODIRATIME, true)),
    row("diratime", Flag(MountFlags::NODIRATIME, false)),
    row("strictatime", Flag(MountFlags::STRICTATIME, true)),
    row("nostrictatime", Flag(MountFlags::STRICTATIME, false)),
    row("remount", Word(|o| o.remount = true)),
    row("sync", Word(|o| o.sync = Some(true))),
    row("async", Word(|o| o.sync = Some(false))),
    row("dirsync", Word(|o| o.dirsync = true)),
    row("norecovery", Word(|o| o.no_recovery = true)),
    row("auto_da_alloc", Word(|o| o.auto_da_alloc = Some(true))),
    row("noauto_da_alloc", Word(|o| o.auto_da_alloc = Some(false))),
    row("discard", Word(|o| o.discard = Some(true))),
    row("nodiscard", Word(|o| o.discard = Some(false))),
    row("noxattr", Word(|o| o.xattrs = Some(Xattrs::Refused))),
    row("allow_other", Word(|o| o.allow_other = Some(true))),
    row("writeback", Word(|o| o.writeback = true)).long(
        "writeback",
        "",
        "Let the kernel combine small writes; errors such as a lack of space then show late, \
         when a file is closed or synced, and SEEK_DATA and SEEK_HOLE find no holes. A file \
         that is renamed over another while it is open, and not synced, can be empty after a \
         crash",
    ),
    row("chattr", Word(|o| o.chattr = true)),
    row("idmap", Word(|o| o.idmap = true)),
    row(
        "noacl",
        Refused("`noacl`: access control lists always count; remove them instead (setfacl)"),
    ),
    row("noxattr", Value(|o, text| set(&mut o.xattrs, parse_noxattr(text)))).long(
        "noxattr",
        "[force]",
        "Serve no extended attributes, access control lists and file capabilities, as `-o \
         noxattr`: writing many small files then takes fewer messages. Refused if a file has \
         any, which takes a walk over all files; with `force` those are ignored, and stay \
         stored",
    ),
    row("allow_other", Value(|o, text| set(&mut o.allow_other, parse_yes(text)))).long(
        "allow-other",
        "[YES]",
        "Give other users access, as permissions allow (default: yes for a mount of root, no \
         for others and for `run`)",
    ),
    row("size", Value(|o, text| set(&mut o.size, text.parse()))),
    row("nr_inodes", Value(|o, text| set(&mut o.inodes, parse_inodes(text)))).of(Memory).long(
        "inodes",
        "N",
        "Maximum number of files and directories (default: as many as fit)",
    ),
    row("inodes", Value(|o, text| set(&mut o.inodes, parse_inodes(text)))),
    row("mode", Value(|o, text| set(&mut o.mode, parse_mode(text)))).long(
        "mode",
        "MODE",
        "Permissions of the root directory of a new file system, in octal (default: 755)",
    ),
    row("uid", Value(|o, text| set(&mut o.uid, parse_id(text)))).long(
        "uid",
        "UID",
        "Owner of the root directory of a new file system (default: you)",
    ),
    row("gid", Value(|o, text| set(&mut o.gid, parse_id(text)))).long(
        "gid",
        "GID",
        "Group of the root directory of a new file system (default: yours)",
    ),
    row(
        "errors",
        Value(|o, text| {
            set(&mut o.on_error, text.parse().map_err(|e: OnErrorError| e.to_string()))
        }),
    ),
    row("branch", Value(|o, text| set(&mut o.branch, Ok(text.to_owned())))).of(Volumes).long(
        "branch",
        "NAME",
        "The branch of the image, as `-o branch=NAME`; by default `main`, which is the volume \
         itself",
    ),
    row("log_device", Value(|o, text| set(&mut o.log_device, Ok(text.into())))).of(Volumes),
    row("ceph_conf", Value(|o, text| set(&mut o.ceph.conf, Ok(text.into())))).of(Volumes),
    row("id", Value(|o, text| set(&mut o.ceph.id, Ok(text.to_owned())))).of(Volumes),
    row("sync_interval", Value(|o, text| set(&mut o.sync_interval, parse_seconds(text))))
        .of(Volumes)
        .long(
            "sync-interval",
            "SECONDS",
            "Seconds until unsynced changes reach the disk (default: 5)",
        ),
    row("commit", Value(|o, text| set(&mut o.sync_interval, parse_seconds(text)))).of(Volumes),
    row("cache_size", Value(|o, text| set(&mut o.cache_size, text.parse()))).of(Volumes).long(
        "cache-size",
        "SIZE",
        "Size of the volume's cache: bytes, with K, M, G, or a share of the memory such as \
         10% (default: 320M, but at most a quarter of the memory of the machine or control \
         group). Three quarters hold data: writers wait when all of that is dirty. One \
         quarter holds metadata. Dirty metadata that is not yet written in place may take \
         half as much again; beyond that, changes wait. Names and inodes take another 128M. \
         Branches that are mounted beside one of `-o branch` share its memory, unless they \
         have a size of their own",
    ),
    row("poll", Value(|o, text| set(&mut o.poll, parse_polling(text)))).long(
        "poll",
        "WHEN",
        "Whether a worker looks for the next request for a moment, 50 microseconds at most, \
         before it sleeps: `auto` or `never`. Calls of a single client then take a quarter \
         less time, and a CPU while it works. `auto`: where that saves time, while there are \
         fewer clients than CPUs, but not on battery or if a control group limits the CPU \
         time; `vfscale stat DIR` shows it (default: auto)",
    ),
    row("threads", Value(|o, text| set(&mut o.threads, parse_threads(text)))).long(
        "threads",
        "N",
        "Worker threads (default: one for each CPU, 2 to 16)",
    ),
    row("transport", Value(|o, text| set(&mut o.transport, text.parse()))).long(
        "transport",
        "TRANSPORT",
        "How the kernel hands requests to the server: `classic`, through /dev/fuse (default), \
         or `uring`, through io_uring with a queue and a thread for each CPU (Linux 6.14), \
         which is faster with several CPUs; the worker threads then serve what takes long. \
         root must have switched it on",
    ),
    row("fsname", Value(|o, text| set(&mut o.source, Ok(text.to_owned())))),
];

/// The long options that stand in the table, with their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongOptions(Vec<(usize, Option<String>)>);

impl Args for LongOptions {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.iter().filter_map(Row::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LongOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut found = Self::default();
        found.update_from_arg_matches(matches).map(|()| found)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (at, row) in OPTIONS.iter().enumerate() {
            let Some((name, value, _)) = row.long else { continue };
            let id = name.replace('-', "_");
            if value.is_empty() {
                self.0.extend(matches.get_flag(&id).then_some((at, None)));
            } else if let Some(text) = matches.get_one::<String>(&id) {
                self.0.push((at, Some(text.clone())));
            }
        }
        Ok(())
    }
}

/// Words of `fstab(5)` that have no meaning here, or name the default.
const IGNORED_WORDS: &[&str] = &[
    "defaults",
    "acl",
    "relatime",
    "norelatime",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "silent",
    "loud",
    "default_permissions",
    "iversion",
    "lazytime",
    "nolazytime",
];

/// Names of values that have no meaning here: those that the kernel shows of a mount, which `mount
/// -o remount` repeats, and comments.
const IGNORED_VALUES: &[&str] =
    &["fd", "rootmode", "user_id", "group_id", "max_read", "blksize", "subtype", "comment"];

/// Sets an option to a value that was parsed.
fn set<T>(option: &mut Option<T>, parsed: Result<T, String>) -> Result<(), String> {
    *option = Some(parsed?);
    Ok(())
}

/// Parses the options after one `-o`.
///
/// # Errors
/// Returns a text that names the invalid option.
pub(crate) fn parse(text: &str) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    options.read(text).map(|()| options)
}

/// Checks the options after one `-o`, and returns their text.
///
/// # Errors
/// Returns a text that names the invalid option.
pub(crate) fn checked(text: &str) -> Result<String, String> {
    parse(text).map(|_| text.to_owned())
}

/// Splits a text at commas; a backslash escapes a comma.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let part = match c {
            ',' => {
                parts.push(String::new());
                continue;
            }
            '\\' => chars.next(),
            c => Some(c),
        };
        if let (Some(c), Some(last)) = (part, parts.last_mut()) {
            last.push(c);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests;
