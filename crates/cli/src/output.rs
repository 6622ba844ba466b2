//! Where commands that measure write their results, and how a signal ends them.

use std::io::Write;
use std::path::Path;

use vfscale_bench::Interrupt;

use crate::error::Failure;
use crate::signals::Blocked;

/// What the shell says of a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 128 + 2;

/// Before anything is measured, so that nothing is measured for nothing.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::Write(dir.to_owned(), e);
    std::fs::create_dir_all(dir).map_err(failed)?;
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).map_err(|e| failed(e.into()))
}

/// Standard output may be a pipe that nobody reads to its end; that is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Write("standard output".into(), e))
        }
        _ => Ok(()),
    }
}

/// Where results are wanted in some form, and what makes that.
pub(crate) type Form<'a> = (Option<&'a Path>, &'a dyn Fn() -> String);

/// Prints a report, and writes it in other forms where they are wanted; `-` is standard output, and then the
/// text goes to standard error.
pub(crate) fn output(forms: &[Form<'_>], text: &str) -> Result<(), Failure> {
    let is_stdout = |file: &Path| file.as_os_str() == "-";
    if forms.iter().any(|(file, _)| file.is_some_and(is_stdout)) {
        eprint!("{text}");
    } else {
        print(text)?;
    }
    for (file, form) in forms {
        match file {
            Some(file) if is_stdout(file) => print(&form())?,
            Some(file) => {
                std::fs::write(file, form()).map_err(|e| Failure::Write(file.to_path_buf(), e))?
            }
            None => {}
        }
    }
    Ok(())
}

/// Signals that end a program end the run instead, so that it can remove what it made.
pub(crate) fn interrupted_by_signals() -> Result<Interrupt, Failure> {
    let signals = Blocked::new().map_err(|e| Failure::System("pthread_sigmask", e))?;
    let interrupt = Interrupt::new();
    let raised = interrupt.clone();
    std::thread::spawn(move || {
        loop {
            let caught = signals.wait();
            if ![libc::SIGUSR1, libc::SIGUSR2].contains(&caught.signal) {
                raised.raise();
            }
        }
    });
    Ok(interrupt)
}
