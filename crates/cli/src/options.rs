//! The options of mounts: after `-o`, and long ones. Those of the file system itself stand in
//! [`options::TABLE`], which C and Python share; here are those of the mount.

use std::ffi::OsStr;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use vfscale::options::{self, OptionError, parse_id, split};
pub(crate) use vfscale::options::{parse_bytes, parse_seconds};
use vfscale::posix::MountFlags;
use vfscale_fuse::control::Growth;
use vfscale_fuse::{Polling, Syncing, Transport, Xattrs};

/// Parses the new size of an image, or by how much it grows.
pub(crate) fn parse_growth(text: &str) -> Result<Growth, String> {
    match text.strip_prefix('+') {
        Some(more) => parse_bytes(more).map(Growth::By),
        None => parse_bytes(text).map(Growth::To),
    }
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
    /// The options of the file system.
    pub(crate) fs: options::Options,
    pub(crate) remount: bool,
    /// Whether all changes are durable when their calls return, and whether those of names are.
    sync: Option<bool>,
    dirsync: bool,
    pub(crate) allow_other: Option<bool>,
    pub(crate) source: Option<String>,
    pub(crate) xattrs: Option<Xattrs>,
    pub(crate) branch: Option<String>,
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
        let mut flags = (flags - self.cleared) | self.set;
        flags.set(MountFlags::RDONLY, flags.contains(MountFlags::RDONLY) || self.is_read_only());
        flags
    }

    /// Returns the same options for a branch that is only read.
    pub(crate) fn to_read(&self, branch: String) -> Self {
        let mut options = Self { branch: Some(branch), ..self.clone() };
        options.fs.read_only = Some(true);
        options
    }

    /// Returns whether the options forbid writing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.set.contains(MountFlags::RDONLY) || self.fs.read_only == Some(true)
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
        for (name, value) in &long.0 {
            let applied = self.apply_one(name, value.as_deref());
            debug_assert_eq!(applied, Ok(()), "the parser of the command line has checked it");
        }
    }

    fn flag(&mut self, flag: MountFlags, on: bool) {
        self.set.set(flag, on);
        self.cleared.set(flag, !on);
    }

    fn relatime(&mut self) {
        self.flag(MountFlags::NOATIME, false);
        self.flag(MountFlags::RELATIME, true);
    }

    /// Applies the options after one `-o`. Later ones win.
    ///
    /// # Errors
    /// Returns a text that names the invalid option.
    pub(crate) fn read(&mut self, text: &str) -> Result<(), String> {
        split(text).iter().try_for_each(|option| self.take(option))
    }

    /// Applies one option.
    fn take(&mut self, option: &str) -> Result<(), String> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        self.apply_one(name, value)
    }

    /// Applies one option, as the tables say.
    fn apply_one(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let named = OPTIONS.iter().filter(|row| row.name == name);
        if let Some(applied) = named.filter_map(|row| row.apply(self, value)).next() {
            return applied.map_err(|why| match value {
                Some(value) => format!("{name}={value}: {why}"),
                None => why,
            });
        }
        let ignored = if value.is_some() { IGNORED_VALUES } else { IGNORED_WORDS };
        if name.starts_with("x-") || ignored.contains(&name) {
            return Ok(());
        }
        self.fs.set(name, value.map(OsStr::new)).map_err(|error| match (error, value) {
            (OptionError::Unknown(name), Some(value)) => {
                format!("mount option `{name}={value}` is unknown")
            }
            (OptionError::Unknown(name), None) => format!("mount option `{name}` is unknown"),
            (error, _) => error.to_string(),
        })
    }
}

/// An option: how it is written after `-o`, and perhaps as a long option, and what it does.
struct Row {
    name: &'static str,
    /// The description; none for a row that another one of the name describes.
    help: &'static str,
    effect: Effect,
    is_of_volumes: bool,
    /// The long option, and its value (none, `[OPTIONAL]` or `NEEDED`).
    long: Option<(&'static str, &'static str)>,
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

use Effect::{Flag, Refused, Value, Word};

const fn row(name: &'static str, help: &'static str, effect: Effect) -> Row {
    Row { name, help, effect, is_of_volumes: false, long: None }
}

impl Row {
    const fn of_volumes(self) -> Row {
        Row { is_of_volumes: true, ..self }
    }

    const fn long(self, name: &'static str, value: &'static str) -> Row {
        Row { long: Some((name, value)), ..self }
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
        Some(Ok(()))
    }

    /// Returns the long option.
    fn argument(&'static self) -> Option<Arg> {
        let (name, value) = self.long?;
        let arg = argument(self.name, name.to_owned(), value, self.help);
        Some(if self.is_of_volumes { arg.conflicts_with("memory") } else { arg })
    }
}

/// Returns the long option `long` of an option; its id has underscores.
fn argument(name: &'static str, long: String, value: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(long.replace('-', "_")).long(long).help(help);
    if value.is_empty() {
        return arg.action(ArgAction::SetTrue);
    }
    let check = move |text: &str| {
        MountOptions::default().apply_one(name, Some(text)).map(|()| text.to_owned())
    };
    let arg = arg.value_name(value.trim_matches(['[', ']'])).value_parser(check);
    match value.starts_with('[') {
        true => arg.num_args(0..=1).require_equals(true).default_missing_value(""),
        false => arg,
    }
}

/// The options of the file system that are long options too.
const LONG: &[&str] =
    &["inodes", "log_size", "log_device", "mode", "uid", "gid", "sync_interval", "cache_size"];

/// Returns the long options of the file system, each with its name after `-o`.
fn of_file_system() -> impl Iterator<Item = (&'static str, Arg)> {
    let rows = LONG.iter().filter_map(|name| options::TABLE.iter().find(|r| r.names[0] == *name));
    rows.map(|row| {
        let arg =
            argument(row.names[0], row.names[0].replace('_', "-"), row.value, row.help.trim());
        let arg = if row.is_of_memory() { arg } else { arg.conflicts_with("memory") };
        (row.names[0], if row.is_of_volumes() { arg } else { arg.requires("memory") })
    })
}

/// The options of mounts. A new one is a row here, and a field that is read where the file system
/// is mounted.
static OPTIONS: &[Row] = &[
    row(
        "ro",
        "Write nothing to the volume, as `-o ro`. If it was not unmounted, its log is replayed in \
         memory; with `-o ro,norecovery` the log is ignored",
        Flag(MountFlags::RDONLY, true),
    )
    .long("read-only", ""),
    row("rw", "The default: the volume is written", Flag(MountFlags::RDONLY, false)),
    row("nosuid", "Ignore set-id bits and capabilities of files", Flag(MountFlags::NOSUID, true)),
    row("suid", "Undo nosuid", Flag(MountFlags::NOSUID, false)),
    row("nodev", "Open no devices", Flag(MountFlags::NODEV, true)),
    row("dev", "Undo nodev", Flag(MountFlags::NODEV, false)),
    row("noexec", "Execute no files", Flag(MountFlags::NOEXEC, true)),
    row("exec", "Undo noexec", Flag(MountFlags::NOEXEC, false)),
    row("nosymfollow", "Follow no symbolic links", Flag(MountFlags::NOSYMFOLLOW, true)),
    row("symfollow", "Undo nosymfollow", Flag(MountFlags::NOSYMFOLLOW, false)),
    row(
        "noatime",
        "Leave access times as they are; the default in branches other than `main`",
        Flag(MountFlags::NOATIME, true),
    ),
    row("atime", "Undo noatime, and as relatime", Word(MountOptions::relatime)),
    row(
        "nodiratime",
        "Leave access times of directories as they are",
        Flag(MountFlags::NODIRATIME, true),
    ),
    row("diratime", "Undo nodiratime", Flag(MountFlags::NODIRATIME, false)),
    row(
        "relatime",
        "Set the access time at an access once a day, and at the first one after a change; the \
         default, but for branches other than `main`",
        Word(MountOptions::relatime),
    ),
    row(
        "strictatime",
        "Set the access time at each access, not only once a day or after a change",
        Flag(MountFlags::STRICTATIME, true),
    ),
    row("nostrictatime", "Undo strictatime", Flag(MountFlags::STRICTATIME, false)),
    row("remount", "Change the options of what is mounted there", Word(|o| o.remount = true)),
    row("sync", "Make each change durable before its call returns", Word(|o| o.sync = Some(true))),
    row("async", "Undo sync", Word(|o| o.sync = Some(false))),
    row(
        "dirsync",
        "Make each change of names durable before its call returns",
        Word(|o| o.dirsync = true),
    ),
    row("noxattr", "", Word(|o| o.xattrs = Some(Xattrs::Refused))),
    row("allow_other", "", Word(|o| o.allow_other = Some(true))),
    row(
        "writeback",
        "Let the kernel combine small writes; errors such as a lack of space then show late, when \
         a file is closed or synced, and SEEK_DATA and SEEK_HOLE find no holes. A file that is \
         renamed over another while it is open, and not synced, can be empty after a crash",
        Word(|o| o.writeback = true),
    )
    .long("writeback", ""),
    row(
        "chattr",
        "Refuse to open immutable and append-only files for writing, which takes two messages for \
         each opening; without it that is so if there were such files before",
        Word(|o| o.chattr = true),
    ),
    row(
        "idmap",
        "Let mounts of it be id-mapped, as with X-mount.idmap of mount(8), from Linux 6.12 on",
        Word(|o| o.idmap = true),
    ),
    row(
        "noacl",
        "",
        Refused("`noacl`: access control lists always count; remove them instead (setfacl)"),
    ),
    row(
        "noxattr",
        "Serve no extended attributes, access control lists and file capabilities, as `-o \
         noxattr`: writing many small files then takes fewer messages. Refused if a file has any, \
         which takes a walk over all files; with `force` those are ignored, and stay stored",
        Value(|o, text| set(&mut o.xattrs, parse_noxattr(text))),
    )
    .long("noxattr", "[force]"),
    row(
        "allow_other",
        "Give other users access, as permissions allow (default: yes for a mount of root, no for \
         others and for `run`)",
        Value(|o, text| set(&mut o.allow_other, parse_yes(text))),
    )
    .long("allow-other", "[YES]"),
    row(
        "branch",
        "The branch of the image, as `-o branch=NAME`; by default `main`, which is the volume \
         itself",
        Value(|o, text| set(&mut o.branch, Ok(text.to_owned()))),
    )
    .of_volumes()
    .long("branch", "NAME"),
    row(
        "poll",
        "Whether a worker looks for the next request for a moment, 50 microseconds at most, \
         before it sleeps: `auto` or `never`. Calls of a single client then take a quarter less \
         time, and a CPU while it works. `auto`: where that saves time, while there are fewer \
         clients than CPUs, but not on battery or if a control group limits the CPU time; \
         `vfscale stat DIR` shows it (default: auto)",
        Value(|o, text| set(&mut o.poll, parse_polling(text))),
    )
    .long("poll", "WHEN"),
    row(
        "threads",
        "Worker threads (default: one for each CPU, 2 to 16)",
        Value(|o, text| set(&mut o.threads, parse_threads(text))),
    )
    .long("threads", "N"),
    row(
        "transport",
        "How the kernel hands requests to the server: `classic`, through /dev/fuse (default), or \
         `uring`, through io_uring with a queue and a thread for each CPU (Linux 6.14), which is \
         faster with several CPUs; the worker threads then serve what takes long. root must have \
         switched it on",
        Value(|o, text| set(&mut o.transport, text.parse())),
    )
    .long("transport", "TRANSPORT"),
    row(
        "fsname",
        "The source that the table of mounts shows (default: the path of the image)",
        Value(|o, text| set(&mut o.source, Ok(text.to_owned()))),
    ),
];

/// The long options that stand in the tables: their names after `-o`, and their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongOptions(Vec<(&'static str, Option<String>)>);

/// Returns all long options, each with its name after `-o`.
fn all_long() -> impl Iterator<Item = (&'static str, Arg)> {
    of_file_system().chain(OPTIONS.iter().filter_map(|row| Some((row.name, row.argument()?))))
}

impl Args for LongOptions {
    fn augment_args(command: Command) -> Command {
        command.args(all_long().map(|(_, arg)| arg))
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
        for (name, arg) in all_long() {
            let id = arg.get_id().as_str();
            if matches!(arg.get_action(), ArgAction::SetTrue) {
                self.0.extend(matches.get_flag(id).then_some((name, None)));
            } else if let Some(text) = matches.get_one::<String>(id) {
                self.0.push((name, Some(text.clone())));
            }
        }
        Ok(())
    }
}

/// Words of `fstab(5)` that have no meaning here, or name the default.
const IGNORED_WORDS: &[&str] = &[
    "defaults",
    "acl",
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

/// Returns the options as they begin after `-o`, with `=` if a value follows.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let of_mounts = OPTIONS.iter().map(|row| match row.effect {
        Value(_) => format!("{}=", row.name),
        _ => row.name.to_owned(),
    });
    let of_file_systems = options::TABLE.iter().map(|row| match row.value {
        "" => row.names[0].to_owned(),
        _ => format!("{}=", row.names[0]),
    });
    of_mounts.chain(of_file_systems)
}

/// Returns the options as they are written after `-o`, each with its description, in the order of
/// their names.
pub(crate) fn described() -> Vec<(String, &'static str)> {
    let of_mounts = OPTIONS.iter().filter(|row| !row.help.is_empty()).map(|row| {
        let name = row.name;
        let written = match (&row.effect, row.long) {
            (Value(_), Some((_, value))) if value.starts_with('[') => {
                format!("{name}, {name}={}", value.trim_matches(['[', ']']))
            }
            (Value(_), long) => format!("{name}={}", long.map_or("NAME", |(_, value)| value)),
            _ => name.to_owned(),
        };
        (written, row.help)
    });
    let is_other = |row: &&options::Row| OPTIONS.iter().all(|other| other.name != row.names[0]);
    let of_file_systems = options::TABLE.iter().filter(is_other).map(|row| {
        let name = row.names[0];
        let written = match (row.value, name.starts_with("no")) {
            ("", true) => name.to_owned(),
            ("", false) => format!("{name}, no{name}"),
            (value, _) => {
                let each = row.names.iter().map(|name| format!("{name}={value}"));
                each.collect::<Vec<_>>().join(", ")
            }
        };
        (written, row.help.trim())
    });
    let mut all: Vec<_> = of_mounts.chain(of_file_systems).collect();
    all.sort();
    all
}

/// Returns the help of `-o`, with all options.
pub(crate) fn help_of_all() -> String {
    let about = "Options of mount(8), separated by commas; later ones win. The words of fstab(5) \
                 that name defaults are let pass";
    let each = described().into_iter().map(|(name, help)| format!("\n  {name}: {help}"));
    format!("{about}:\n{}", each.collect::<String>())
}

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

#[cfg(test)]
mod tests;
