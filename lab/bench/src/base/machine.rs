//! The measured machine, and the CPU time that it withheld from the measurement.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};

/// The machine that figures depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The model of the CPUs.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory: u64,
}

impl Machine {
    /// Returns a description of this machine.
    pub fn this() -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == "model name").then(|| value.trim().to_owned())
        });
        let memory = rustix::system::sysinfo();
        Machine {
            cpu: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: usable_cpus().len().max(1),
            #[allow(clippy::useless_conversion, reason = "narrower on other machines")]
            memory: u64::from(memory.totalram) * u64::from(memory.mem_unit),
        }
    }
}

/// Returns the CPUs that this process may use, in order.
pub fn usable_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => vec![],
    }
}

/// Returns the kernel's name and version.
pub fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}

/// Returns the resident memory of this process in bytes; 0 if the kernel does not tell.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Returns the commit that the program was built from, or its version if no commit was known.
pub fn commit() -> String {
    option_env!("VFSCALE_COMMIT")
        .map_or_else(|| format!("v{}", env!("CARGO_PKG_VERSION")), str::to_owned)
}

/// Returns the command line of this process, with the name of the program instead of its path, as a
/// shell would take it.
pub fn command() -> String {
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell, if it has to be.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Its type, such as `ext4`.
    pub fs_type: String,
    /// The mounted device or name.
    pub source: String,
    /// The directory at which it is mounted.
    pub at: String,
    /// The options of the mount and of the superblock.
    pub options: String,
}

impl Mount {
    /// Finds the mount that holds a directory (`mountinfo` of `proc(5)`).
    pub fn of(dir: &Path) -> Option<Mount> {
        let table = std::fs::read("/proc/self/mountinfo").ok()?;
        Mount::find(&table, &dir.canonicalize().ok()?)
    }

    fn find(table: &[u8], dir: &Path) -> Option<Mount> {
        let mut found: Option<(PathBuf, Mount)> = None;
        for line in table.split(|b| *b == b'\n') {
            let Some((at, mount)) = Mount::parse(line) else { continue };
            // The mount with the longest path, and the last of several at one path.
            let better =
                |(best, _): &(PathBuf, Mount)| at.components().count() >= best.components().count();
            if dir.starts_with(&at) && found.as_ref().is_none_or(better) {
                found = Some((at, mount));
            }
        }
        found.map(|(_, mount)| mount)
    }

    /// Parses a line such as
    /// `36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
    fn parse(line: &[u8]) -> Option<(PathBuf, Mount)> {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        let at = PathBuf::from(unescape(fields.get(4)?));
        let text = |index: usize| {
            let field = fields.get(index)?;
            Some(Path::new(&unescape(field)).display().to_string())
        };
        let mount = Mount {
            fs_type: text(dash + 1)?,
            source: text(dash + 2)?,
            at: at.display().to_string(),
            options: format!("{};{}", text(5)?, text(dash + 3).unwrap_or_default()),
        };
        Some((at, mount))
    }
}

/// Replaces octal escapes of blanks and other bytes, such as `\040`.
fn unescape(field: &[u8]) -> std::ffi::OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|d| d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match (first, digits) {
            (b'\\', Some(digits)) => {
                let value = digits.iter().fold(0_u32, |n, d| n * 8 + u32::from(d - b'0'));
                plain.push(value as u8);
                rest = &after[3..];
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(plain)
}

/// CPU time that the host or a limit has taken from this machine so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Theft {
    /// Ticks that the host gave to other machines (`steal` of `proc(5)`).
    stolen: u64,
    /// All ticks.
    all: u64,
    /// Microseconds for which a limit of the control group throttled this process.
    throttled: u64,
}

impl Theft {
    /// Reads the counters.
    pub(crate) fn now() -> Theft {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let (stolen, all) = stat.lines().next().map_or((0, 0), ticks);
        Theft { stolen, all, throttled: throttled_micros().unwrap_or(0) }
    }

    /// Returns the share of CPU time that was taken since `before`, from 0 to 1. `elapsed` is in
    /// nanoseconds.
    pub(crate) fn since(self, before: Theft, elapsed: u64) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let stolen = self.stolen.saturating_sub(before.stolen) as f64;
        let by_host = if all == 0 { 0.0 } else { stolen / all as f64 };
        let throttled = self.throttled.saturating_sub(before.throttled) as f64 * 1_000.0;
        let by_limit = throttled / elapsed.max(1) as f64;
        (by_host + by_limit).clamp(0.0, 1.0)
    }
}

/// Returns the stolen ticks and all ticks of a line `cpu user nice system idle iowait irq softirq
/// steal ...`. Time of guests is already part of `user`.
fn ticks(line: &str) -> (u64, u64) {
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).take(8).map(|t| t.parse().unwrap_or(0)).collect();
    (ticks.get(7).copied().unwrap_or(0), ticks.iter().sum())
}

/// Returns `throttled_usec` of this process's control group, version 2.
fn throttled_micros() -> Option<u64> {
    let groups = std::fs::read("/proc/self/cgroup").ok()?;
    let group = groups.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"0::/"))?;
    let dir = Path::new("/sys/fs/cgroup").join(OsStr::from_bytes(group));
    let stat = std::fs::read_to_string(dir.join("cpu.stat")).ok()?;
    stat.lines().find_map(|line| line.strip_prefix("throttled_usec ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests;
