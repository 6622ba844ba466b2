//! The results of measuring commands, and their interruption by signals.

use std::io::Write;
use std::path::Path;

use vfscale_bench::Interrupt;
use vfscale_command::signals::Blocked;

use crate::error::Failure;

/// Exit status of a command that Ctrl-C ended, as shells report it.
pub(crate) const INTERRUPTED: u8 = 128 + 2;

/// Creates a directory for results and checks that it is writable, before time is spent on
/// measuring.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::Write(dir.to_owned(), e);
    std::fs::create_dir_all(dir).map_err(failed)?;
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).map_err(|e| failed(e.into()))
}

/// Prints to standard output. A pipe that its reader has closed is not a failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Write("standard output".into(), e))
        }
        _ => Ok(()),
    }
}

/// A file for results in some form, if requested, and the function that renders them.
pub(crate) type Form<'a> = (Option<&'a Path>, &'a dyn Fn() -> String);

/// Prints a report, and writes it to files in the requested forms. If one of them is `-`, standard
/// output, the text is printed to standard error.
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

/// Makes signals that end a program interrupt the run instead, which can then remove its files.
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
