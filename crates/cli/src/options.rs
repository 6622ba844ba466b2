//! Modes, sizes of images, and the options after `-o`.

use std::path::PathBuf;
use std::time::Duration;

use vfscale::block::Ceph;
use vfscale::posix::MountFlags;
use vfscale_command::Size;
use vfscale_diskfs::{OnError, OnErrorError};
use vfscale_fuse::{Polling, Syncing, Transport, Xattrs};

/// Parses the size of an image, which can't be a share of the memory.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    match text.parse()? {
        Size::Bytes(bytes) if bytes >= 4096 => Ok(bytes / 4096 * 4096),
        _ => Err(format!("`{text}` is not the size of an image: write it as 64M or 10G")),
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
        _ => Err(format!("poll={text}: write auto or never")),
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
        _ => Err(format!("noxattr={text}: write noxattr or noxattr=force")),
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

    /// Returns the name of an option that only a volume has, if one is set.
    pub(crate) fn of_volumes(&self) -> Option<&'static str> {
        if self.branch.is_some() {
            return Some("branch");
        }
        if self.log_device.is_some() {
            return Some("log_device");
        }
        if self.ceph.conf.is_some() {
            return Some("ceph_conf");
        }
        if self.ceph.id.is_some() {
            return Some("id");
        }
        if self.sync_interval.is_some() {
            return Some("commit");
        }
        self.cache_size.is_some().then_some("cache_size")
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
        for (_, how) in OPTIONS.iter().filter(|(known, _)| *known == name) {
            match (how, value) {
                (Flag(flag, on), None) => self.flag(*flag, *on),
                (Word(set), None) => set(self),
                (Refused(why), None) => return Err((*why).to_owned()),
                (Value(set), Some(value)) => set(self, value)?,
                (Named(set), Some(value)) => {
                    set(self, value).map_err(|why| format!("{option}: {why}"))?;
                }
                _ => continue,
            }
            return Ok(());
        }
        let ignored = if value.is_some() { IGNORED_VALUES } else { IGNORED_WORDS };
        if name.starts_with("x-") || ignored.contains(&name) {
            return Ok(());
        }
        Err(format!("mount option `{option}` is unknown"))
    }
}

/// The effect of an option after `-o`.
enum Effect {
    /// A word sets or clears a flag of the mount.
    Flag(MountFlags, bool),
    /// A word sets an option.
    Word(fn(&mut MountOptions)),
    /// A word is known and can't be had, for a reason.
    Refused(&'static str),
    /// A name with a value sets an option; an error is reported as it is.
    Value(fn(&mut MountOptions, &str) -> Result<(), String>),
    /// A name with a value sets an option; an error is reported after both.
    Named(fn(&mut MountOptions, &str) -> Result<(), String>),
}

use Effect::{Flag, Named, Refused, Value, Word};

/// The options after `-o`, by their names.
const OPTIONS: &[(&str, Effect)] = &[
    ("ro", Flag(MountFlags::RDONLY, true)),
    ("rw", Flag(MountFlags::RDONLY, false)),
    ("nosuid", Flag(MountFlags::NOSUID, true)),
    ("suid", Flag(MountFlags::NOSUID, false)),
    ("nodev", Flag(MountFlags::NODEV, true)),
    ("dev", Flag(MountFlags::NODEV, false)),
    ("noexec", Flag(MountFlags::NOEXEC, true)),
    ("exec", Flag(MountFlags::NOEXEC, false)),
    ("nosymfollow", Flag(MountFlags::NOSYMFOLLOW, true)),
    ("symfollow", Flag(MountFlags::NOSYMFOLLOW, false)),
    ("noatime", Flag(MountFlags::NOATIME, true)),
    ("atime", Flag(MountFlags::NOATIME, false)),
    ("nodiratime", Flag(MountFlags::NODIRATIME, true)),
    ("diratime", Flag(MountFlags::NODIRATIME, false)),
    ("strictatime", Flag(MountFlags::STRICTATIME, true)),
    ("nostrictatime", Flag(MountFlags::STRICTATIME, false)),
    ("remount", Word(|o| o.remount = true)),
    ("sync", Word(|o| o.sync = Some(true))),
    ("async", Word(|o| o.sync = Some(false))),
    ("dirsync", Word(|o| o.dirsync = true)),
    ("norecovery", Word(|o| o.no_recovery = true)),
    ("auto_da_alloc", Word(|o| o.auto_da_alloc = Some(true))),
    ("noauto_da_alloc", Word(|o| o.auto_da_alloc = Some(false))),
    ("discard", Word(|o| o.discard = Some(true))),
    ("nodiscard", Word(|o| o.discard = Some(false))),
    ("noxattr", Word(|o| o.xattrs = Some(Xattrs::Refused))),
    ("noxattr", Value(|o, text| set(&mut o.xattrs, parse_noxattr(text)))),
    ("allow_other", Word(|o| o.allow_other = Some(true))),
    ("writeback", Word(|o| o.writeback = true)),
    ("chattr", Word(|o| o.chattr = true)),
    ("idmap", Word(|o| o.idmap = true)),
    ("noacl", Refused("`noacl`: access control lists always count; remove them instead (setfacl)")),
    ("size", Value(|o, text| set(&mut o.size, text.parse()))),
    ("nr_inodes", Named(|o, text| set(&mut o.inodes, parse_inodes(text)))),
    ("inodes", Named(|o, text| set(&mut o.inodes, parse_inodes(text)))),
    ("mode", Value(|o, text| set(&mut o.mode, parse_mode(text)))),
    ("uid", Named(|o, text| set(&mut o.uid, parse_id(text)))),
    ("gid", Named(|o, text| set(&mut o.gid, parse_id(text)))),
    (
        "errors",
        Value(|o, text| {
            set(&mut o.on_error, text.parse().map_err(|e: OnErrorError| e.to_string()))
        }),
    ),
    ("branch", Value(|o, text| set(&mut o.branch, Ok(text.to_owned())))),
    ("log_device", Value(|o, text| set(&mut o.log_device, Ok(text.into())))),
    ("ceph_conf", Value(|o, text| set(&mut o.ceph.conf, Ok(text.into())))),
    ("id", Value(|o, text| set(&mut o.ceph.id, Ok(text.to_owned())))),
    ("sync_interval", Named(|o, text| set(&mut o.sync_interval, parse_seconds(text)))),
    ("commit", Named(|o, text| set(&mut o.sync_interval, parse_seconds(text)))),
    ("cache_size", Named(|o, text| set(&mut o.cache_size, text.parse()))),
    ("poll", Value(|o, text| set(&mut o.poll, parse_polling(text)))),
    ("threads", Named(|o, text| set(&mut o.threads, parse_threads(text)))),
    ("transport", Named(|o, text| set(&mut o.transport, text.parse()))),
    ("fsname", Value(|o, text| set(&mut o.source, Ok(text.to_owned())))),
];

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
