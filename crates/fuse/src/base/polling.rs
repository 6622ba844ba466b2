//! Polling: a worker that has served a request looks for the next one for a moment before it
//! sleeps.
//!
//! A client that makes one call after the other waits for each reply, so its next request comes a
//! few microseconds later. To wake a worker that sleeps costs more than that: an interrupt to
//! another CPU, which may have to leave an idle state. A worker that polls is awake already.
//! Whether this pays depends on the machine and on where the scheduler places client and worker, so
//! it is measured: see [`Trial`].
//!
//! Polling takes a CPU, so it is bounded:
//!
//! * One worker of a mount polls at a time, for [`WINDOW`] after a request: the leader. It leads
//!   until a poll finds nothing. The others stay away from the device meanwhile, for Linux wakes
//!   one of those that wait there for every request, and the scheduler then moves the client to the
//!   CPU of that one. They look at the device now and then ([`AWAY`]), in case the leader takes
//!   long.
//! * It polls only while there are fewer clients than CPUs. With as many, the CPU that it takes is
//!   one that a client needs.
//! * Between two looks it yields its CPU to whoever else can run there.
//! * There is none where CPU time is short: see [`PollingChoice`].
//!
//! All of this is a guess about the near future, so its state is read and written without order.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a worker polls.
const WINDOW: Duration = Duration::from_micros(50);

/// Time after which a worker that stays away from the device looks at it.
const AWAY: Duration = Duration::from_millis(1);

/// Number of latest requests whose clients count.
const RECENT: usize = 16;

/// Number of requests whose time is measured together.
const BLOCK: usize = 256;

/// Number of blocks from one comparison to the next.
const COMPARE_EVERY: u32 = 64;

/// Blocks of each kind in a comparison.
const COMPARED: u32 = 2;

/// Longest mean time from one request to the next that counts. A client that takes longer does
/// something else, and its time says nothing about polling.
const CYCLE_MAX: Duration = Duration::from_millis(1);

/// Time from one request to the next that polling must save, as a share.
const GAIN_MIN: f64 = 0.1;

/// Whether workers look for the next request for a moment before they sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// They do where it pays, as [`PollingChoice`] tells.
    #[default]
    Auto,
    /// They sleep at once: each request takes longer, and less CPU time.
    Never,
}

/// The choice of a mount for [`Polling::Auto`] when it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollingChoice {
    /// Workers poll.
    Polls,
    /// They don't, as the user wants.
    #[default]
    Never,
    /// They don't: the process may use one CPU only, which its clients need.
    OneCpu,
    /// They don't: a control group limits the CPU time of the process.
    Quota,
    /// They don't: the machine runs on its battery.
    Battery,
}

impl PollingChoice {
    /// All choices, in the order of their numbers.
    const ALL: [PollingChoice; 5] = [
        PollingChoice::Polls,
        PollingChoice::Never,
        PollingChoice::OneCpu,
        PollingChoice::Quota,
        PollingChoice::Battery,
    ];

    /// Chooses for this process and machine, as they are now.
    pub(crate) fn of(wanted: Polling) -> PollingChoice {
        match wanted {
            Polling::Never => PollingChoice::Never,
            Polling::Auto if cpus() < 2 => PollingChoice::OneCpu,
            Polling::Auto if has_quota(Path::new("/")) => PollingChoice::Quota,
            Polling::Auto if is_on_battery(Path::new("/")) => PollingChoice::Battery,
            Polling::Auto => PollingChoice::Polls,
        }
    }

    /// Returns the number of the choice in encoded statistics.
    pub(crate) fn number(self) -> u64 {
        self as u64
    }

    /// Returns the choice with a number; [`Never`](Self::Never) if none has it.
    pub(crate) fn from_number(number: u64) -> PollingChoice {
        usize::try_from(number).ok().and_then(|i| Self::ALL.get(i).copied()).unwrap_or_default()
    }
}

/// In words, after "polling: ".
impl fmt::Display for PollingChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PollingChoice::Polls => "yes",
            PollingChoice::Never => "no",
            PollingChoice::OneCpu => "no: there is one CPU only",
            PollingChoice::Quota => "no: a control group limits the CPU time",
            PollingChoice::Battery => "no: the machine runs on its battery",
        })
    }
}

/// Returns the number of CPUs that this process may use.
fn cpus() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// Returns whether a control group of this process has a limit of CPU time. `root` is the directory
/// that holds `proc` and `sys`.
fn has_quota(root: &Path) -> bool {
    let Ok(groups) = std::fs::read_to_string(root.join("proc/self/cgroup")) else { return false };
    groups.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { return false };
        let (top, file) = match controllers {
            "" => (root.join("sys/fs/cgroup"), "cpu.max"),
            _ if controllers.split(',').any(|name| name == "cpu") => {
                (root.join("sys/fs/cgroup").join(controllers), "cpu.cfs_quota_us")
            }
            _ => return false,
        };
        // In a namespace of control groups the path may begin with `..`, and the top is that of the
        // namespace.
        let group = Path::new(group.trim_start_matches('/'));
        let parents = group.ancestors().filter(|dir| !dir.starts_with(".."));
        let limit = |dir: &Path| std::fs::read_to_string(top.join(dir).join(file)).ok();
        // The second form has the value -1 for no limit.
        let is_limit = |text: String| !text.starts_with("max") && !text.starts_with('-');
        parents.filter_map(limit).any(is_limit)
    })
}

/// Returns whether a battery of the machine discharges. `root` is the directory that holds `sys`.
fn is_on_battery(root: &Path) -> bool {
    let Ok(supplies) = std::fs::read_dir(root.join("sys/class/power_supply")) else { return false };
    supplies.flatten().any(|supply| {
        let is = |file: &str, word: &str| {
            let text = std::fs::read_to_string(supply.path().join(file));
            text.is_ok_and(|text| text.trim_end() == word)
        };
        // Batteries of mice and the like have the scope `Device`.
        is("type", "Battery") && is("status", "Discharging") && !is("scope", "Device")
    })
}

/// The comparison of polling with sleeping at once, by the mean time from one request to the next.
///
/// A single client waits for every reply, so that time is the client's own and that of a message.
/// Now and then both ways are tried for some blocks of requests; in between the better one is
/// taken, and measured on.
#[derive(Debug)]
struct Trial {
    /// Begin of the block.
    began: Instant,
    blocks: u32,
    /// Mean nanoseconds from one request to the next, without polling and with it; 0 if unknown.
    means: [f64; 2],
}

impl Trial {
    fn new(now: Instant) -> Trial {
        Trial { began: now, blocks: 0, means: [0.0; 2] }
    }

    /// Ends a block, in which workers polled or not. Returns whether they are to poll in the next.
    /// The block does not count if it `is_mixed`, because other clients took part.
    fn end_block(&mut self, now: Instant, polled: bool, is_mixed: bool) -> bool {
        let cycle = (now - self.began) / BLOCK as u32;
        self.began = now;
        if !is_mixed && cycle <= CYCLE_MAX {
            let mean = &mut self.means[usize::from(polled)];
            let nanos = cycle.as_nanos() as f64;
            *mean = if *mean == 0.0 { nanos } else { 0.75 * *mean + 0.25 * nanos };
        }
        let place = self.blocks % COMPARE_EVERY;
        self.blocks = self.blocks.wrapping_add(1);
        match place {
            ..COMPARED => true,
            _ if place < 2 * COMPARED => false,
            _ => self.pays(),
        }
    }

    fn pays(&self) -> bool {
        let [asleep, polling] = self.means;
        polling > 0.0 && polling < asleep * (1.0 - GAIN_MIN)
    }
}

/// The latest clients of a mount, and whether a worker polls for them.
#[derive(Debug)]
pub(crate) struct Clients {
    /// Number of CPUs that clients and workers share; 0 if nobody polls.
    cpus: usize,
    served: AtomicUsize,
    trial: Mutex<Trial>,
    /// Whether polling pays, or is tried.
    pays: AtomicBool,
    /// Threads that made the latest requests; 0 for none.
    latest: [AtomicU32; RECENT],
    /// Whether a worker leads: it polls, or serves a request that it found so.
    has_leader: AtomicBool,
    /// Held by the one that looks at the device, of those that stay away.
    guard: Mutex<()>,
}

impl Clients {
    pub(crate) fn new(choice: PollingChoice) -> Arc<Clients> {
        let cpus = if choice == PollingChoice::Polls { cpus() } else { 0 };
        Clients::on(cpus)
    }

    fn on(cpus: usize) -> Arc<Clients> {
        let latest = std::array::from_fn(|_| AtomicU32::new(0));
        Arc::new(Clients {
            cpus,
            served: AtomicUsize::new(0),
            trial: Mutex::new(Trial::new(Instant::now())),
            pays: AtomicBool::new(false),
            latest,
            has_leader: AtomicBool::new(false),
            guard: Mutex::new(()),
        })
    }

    /// Returns whether the latest clients leave a CPU free; false if the server can see no client,
    /// and so can't tell.
    fn leave_a_cpu(&self) -> bool {
        (1..self.cpus).contains(&self.count())
    }

    /// Returns whether a worker is to poll.
    fn want_polling(&self) -> bool {
        self.pays.load(Ordering::Relaxed) && self.leave_a_cpu()
    }

    /// Blocks while another worker leads, until a look at the device finds a request. However many
    /// workers stay away, one of them looks.
    fn stay_away(&self, is_ready: impl Fn() -> bool) {
        let _guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        while self.has_leader.load(Ordering::Relaxed) && self.want_polling() && !is_ready() {
            std::thread::sleep(AWAY);
        }
    }

    /// Notes the thread that made a request.
    fn note(&self, thread: u32) {
        let served = self.served.fetch_add(1, Ordering::Relaxed);
        self.latest[served % RECENT].store(thread, Ordering::Relaxed);
        if served.is_multiple_of(BLOCK)
            && let Ok(mut trial) = self.trial.try_lock()
        {
            let polled = self.pays.load(Ordering::Relaxed);
            let pays = trial.end_block(Instant::now(), polled, !self.leave_a_cpu());
            self.pays.store(pays, Ordering::Relaxed);
        }
    }

    /// Returns the number of threads that made the latest requests.
    fn count(&self) -> usize {
        let mut seen = [0; RECENT];
        let mut count = 0;
        for thread in self.latest.iter().map(|slot| slot.load(Ordering::Relaxed)) {
            if thread != 0 && !seen[..count].contains(&thread) {
                seen[count] = thread;
                count += 1;
            }
        }
        count
    }
}

/// The polling of one worker.
#[derive(Debug)]
pub(crate) struct Poller {
    clients: Arc<Clients>,
    /// Whether this worker is the one that polls.
    leads: bool,
}

impl Poller {
    pub(crate) fn new(clients: Arc<Clients>) -> Poller {
        Poller { clients, leads: false }
    }

    /// Notes the thread that made a request: 0 if Linux made it, or if the server can't see the
    /// thread since it is in another PID namespace.
    pub(crate) fn note(&self, thread: u32) {
        if self.clients.cpus > 0 && thread != 0 {
            self.clients.note(thread);
        }
    }

    /// Waits a moment for the next request, if that pays, or blocks while another worker does so.
    /// Returns whether there is a request, or `None` if this worker did not poll.
    pub(crate) fn poll(&mut self, is_ready: impl Fn() -> bool) -> Option<bool> {
        if !self.clients.want_polling() {
            self.stop_leading();
            return None;
        }
        if !self.leads && self.clients.has_leader.swap(true, Ordering::Relaxed) {
            self.clients.stay_away(is_ready);
            return None;
        }
        self.leads = true;
        let start = Instant::now();
        let found = loop {
            if is_ready() {
                break true;
            }
            if start.elapsed() >= WINDOW {
                break false;
            }
            rustix::thread::sched_yield();
        };
        if !found {
            self.stop_leading();
        }
        Some(found)
    }

    fn stop_leading(&mut self) {
        if std::mem::take(&mut self.leads) {
            self.clients.has_leader.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop_leading();
    }
}

#[cfg(test)]
mod tests;
