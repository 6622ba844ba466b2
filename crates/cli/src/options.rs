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

    /// Merges these options with `later` ones, which take precedence.
    pub(crate) fn then(self, later: &MountOptions) -> MountOptions {
        MountOptions {
            set: (self.set - later.cleared) | later.set,
            cleared: (self.cleared - later.set) | later.cleared,
            remount: self.remount || later.remount,
            sync: later.sync.or(self.sync),
            dirsync: self.dirsync || later.dirsync,
            no_recovery: self.no_recovery || later.no_recovery,
            auto_da_alloc: later.auto_da_alloc.or(self.auto_da_alloc),
            discard: later.discard.or(self.discard),
            on_error: later.on_error.or(self.on_error),
            allow_other: later.allow_other.or(self.allow_other),
            source: later.source.clone().or(self.source),
            xattrs: later.xattrs.or(self.xattrs),
            size: later.size.or(self.size),
            inodes: later.inodes.or(self.inodes),
            mode: later.mode.or(self.mode),
            uid: later.uid.or(self.uid),
            gid: later.gid.or(self.gid),
            branch: later.branch.clone().or(self.branch),
            log_device: later.log_device.clone().or(self.log_device),
            ceph: Ceph {
                conf: later.ceph.conf.clone().or(self.ceph.conf),
                id: later.ceph.id.clone().or(self.ceph.id),
            },
            sync_interval: later.sync_interval.or(self.sync_interval),
            cache_size: later.cache_size.or(self.cache_size),
            threads: later.threads.or(self.threads),
            poll: later.poll.or(self.poll),
            transport: later.transport.or(self.transport),
            writeback: self.writeback || later.writeback,
            chattr: self.chattr || later.chattr,
            idmap: self.idmap || later.idmap,
        }
    }

    fn flag(&mut self, flag: MountFlags, on: bool) {
        self.set.set(flag, on);
        self.cleared.set(flag, !on);
    }

    /// Applies an option without a value; returns whether the option is known.
    ///
    /// # Errors
    /// Returns a text for an option that is known and can't be had.
    fn word(&mut self, word: &str) -> Result<bool, String> {
        /// Words, the flag of each, and whether the word sets it.
        const FLAGS: [(&str, MountFlags, bool); 16] = [
            ("ro", MountFlags::RDONLY, true),
            ("rw", MountFlags::RDONLY, false),
            ("nosuid", MountFlags::NOSUID, true),
            ("suid", MountFlags::NOSUID, false),
            ("nodev", MountFlags::NODEV, true),
            ("dev", MountFlags::NODEV, false),
            ("noexec", MountFlags::NOEXEC, true),
            ("exec", MountFlags::NOEXEC, false),
            ("nosymfollow", MountFlags::NOSYMFOLLOW, true),
            ("symfollow", MountFlags::NOSYMFOLLOW, false),
            ("noatime", MountFlags::NOATIME, true),
            ("atime", MountFlags::NOATIME, false),
            ("nodiratime", MountFlags::NODIRATIME, true),
            ("diratime", MountFlags::NODIRATIME, false),
            ("strictatime", MountFlags::STRICTATIME, true),
            ("nostrictatime", MountFlags::STRICTATIME, false),
        ];
        /// Words of `fstab(5)` that have no meaning here, or name the default.
        const IGNORED: [&str; 19] = [
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
        if let Some(&(_, flag, on)) = FLAGS.iter().find(|(name, ..)| *name == word) {
            self.flag(flag, on);
            return Ok(true);
        }
        match word {
            "remount" => self.remount = true,
            "sync" => self.sync = Some(true),
            "async" => self.sync = Some(false),
            "dirsync" => self.dirsync = true,
            "norecovery" => self.no_recovery = true,
            "auto_da_alloc" => self.auto_da_alloc = Some(true),
            "noauto_da_alloc" => self.auto_da_alloc = Some(false),
            "discard" => self.discard = Some(true),
            "nodiscard" => self.discard = Some(false),
            "noxattr" => self.xattrs = Some(Xattrs::Refused),
            "allow_other" => self.allow_other = Some(true),
            "writeback" => self.writeback = true,
            "chattr" => self.chattr = true,
            "idmap" => self.idmap = true,
            "noacl" => {
                let why =
                    "`noacl`: access control lists always count; remove them instead (setfacl)";
                return Err(why.into());
            }
            _ => return Ok(IGNORED.contains(&word) || word.starts_with("x-")),
        }
        Ok(true)
    }

    /// Applies an option with a value; returns whether the option is known.
    fn pair(&mut self, name: &str, value: &str) -> Result<bool, String> {
        fn named<T>(name: &str, value: &str, parsed: Result<T, String>) -> Result<T, String> {
            parsed.map_err(|why| format!("{name}={value}: {why}"))
        }
        let number = || named(name, value, parse_id(value));
        match name {
            "size" => self.size = Some(value.parse()?),
            "nr_inodes" | "inodes" => {
                self.inodes =
                    Some(value.parse().map_err(|_| format!("{name}={value}: not a number"))?);
            }
            "mode" => self.mode = Some(parse_mode(value)?),
            "uid" => self.uid = Some(number()?),
            "gid" => self.gid = Some(number()?),
            "errors" => {
                self.on_error = Some(value.parse().map_err(|e: OnErrorError| e.to_string())?);
            }
            "noxattr" => self.xattrs = Some(parse_noxattr(value)?),
            "branch" => self.branch = Some(value.to_owned()),
            "log_device" => self.log_device = Some(value.into()),
            "ceph_conf" => self.ceph.conf = Some(value.into()),
            "id" => self.ceph.id = Some(value.to_owned()),
            "sync_interval" | "commit" => {
                self.sync_interval = Some(named(name, value, parse_seconds(value))?)
            }
            "cache_size" => self.cache_size = Some(named(name, value, value.parse())?),
            "poll" => self.poll = Some(parse_polling(value)?),
            "threads" => self.threads = Some(named(name, value, parse_threads(value))?),
            "transport" => self.transport = Some(named(name, value, value.parse())?),
            "fsname" => self.source = Some(value.to_owned()),
            // `mount -o remount` repeats the options that the kernel shows of a mount.
            "fd" | "rootmode" | "user_id" | "group_id" | "max_read" | "blksize" => {}
            "subtype" | "comment" => {}
            _ => return Ok(name.starts_with("x-")),
        }
        Ok(true)
    }
}

/// Parses the options after one `-o`.
///
/// # Errors
/// Returns a text that names the invalid option.
pub(crate) fn parse(text: &str) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    for option in split(text) {
        let known = match option.split_once('=') {
            Some((name, value)) => options.pair(name, value)?,
            None => options.word(&option)?,
        };
        if !known {
            return Err(format!("mount option `{option}` is unknown"));
        }
    }
    Ok(options)
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
