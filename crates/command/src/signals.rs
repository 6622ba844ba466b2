//! Signals, waited for by a thread.
//!
//! The signals that end a program are blocked before the first thread starts, so all threads
//! inherit the mask. One thread waits for the signals one after the other. No code runs in a
//! handler; that of [`outlive_file_size_limit`] has none.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Signals that end a command, or are passed on to the command it runs.
const CAUGHT: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Signals by which a user ends a command.
pub const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Signals that stop and continue a command, and tell of that.
const JOBS: [i32; 5] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU, libc::SIGCONT, libc::SIGCHLD];

/// The blocked signals of this thread and of all threads that it starts, with the former mask.
#[derive(Clone, Copy)]
pub struct Blocked {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

/// A received signal.
#[derive(Clone, Copy, Debug)]
pub struct Caught {
    /// Its number.
    pub signal: i32,
    /// Whether a terminal sent it, to all processes in the foreground.
    pub from_terminal: bool,
}

impl Blocked {
    /// Blocks the signals. Must be called while the process has only one thread.
    ///
    /// # Errors
    /// Returns the error of `pthread_sigmask`.
    pub fn new() -> io::Result<Blocked> {
        Blocked::of(&CAUGHT)
    }

    /// Blocks the signals, those that stop and continue a program, and that of a child which has
    /// stopped or ended: the program stops itself when its command does. Must be called while the
    /// process has only one thread.
    ///
    /// # Errors
    /// Returns the error of `pthread_sigmask`.
    pub fn for_jobs() -> io::Result<Blocked> {
        Blocked::of(&[&CAUGHT[..], &JOBS].concat())
    }

    fn of(signals: &[i32]) -> io::Result<Blocked> {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` fills in the whole set, before anything else reads it.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for &signal in signals {
            // SAFETY: the set is initialised, and the number is a signal's.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: reads an initialised set, and fills in `before` with the former mask, which is
        // read only if that succeeded.
        let before = unsafe {
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) {
                0 => before.assume_init(),
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        };
        Ok(Blocked { set, before })
    }

    /// Waits for the next signal. Blocks until there is one.
    pub fn wait(&self) -> Caught {
        loop {
            // An interrupted wait, for example by a debugger, is none.
            if let Some(caught) = self.wait_until(None) {
                return caught;
            }
        }
    }

    /// Waits for the next signal, for at most a time. `None` if there is none.
    pub fn wait_for(&self, time: Duration) -> Option<Caught> {
        self.wait_until(Some(time))
    }

    fn wait_until(&self, time: Option<Duration>) -> Option<Caught> {
        let time = time.map(|time| libc::timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: reads an initialised set and a time that lives on, if there is one, and fills in
        // `info`.
        let signal = unsafe { libc::sigtimedwait(&raw const self.set, info.as_mut_ptr(), time) };
        (signal > 0).then(|| {
            // SAFETY: `sigtimedwait` has filled it in, and zeros would be valid as well.
            let info = unsafe { info.assume_init() };
            Caught { signal, from_terminal: info.si_code == libc::SI_KERNEL }
        })
    }

    /// Has a program begin with the former mask.
    pub fn restore_in(self, program: &mut Command) {
        // SAFETY: does one system call, which is allowed between `fork` and `exec`.
        unsafe { program.pre_exec(move || self.restore()) };
    }

    /// Restores the former mask of this thread. A child calls this between `fork` and `exec`, so it
    /// does nothing but one system call.
    ///
    /// # Errors
    /// Returns the error of `pthread_sigmask`.
    pub fn restore(&self) -> io::Result<()> {
        // SAFETY: reads an initialised set; nothing else is written.
        let error = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    }
}

/// Has a write beyond the limit of the size of files (`ulimit -f`) fail with `EFBIG`, where it
/// would end this process by SIGXFSZ. Programs that this one starts have the default again.
///
/// # Errors
/// Returns the error of `sigaction`.
pub fn outlive_file_size_limit() -> io::Result<()> {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: all zeros are a valid action, with an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // A handler, since programs would inherit that the signal is ignored.
    action.sa_sigaction = nothing as extern "C" fn(i32) as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is initialised, and its handler does nothing.
    match unsafe { libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
