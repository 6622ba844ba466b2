//! Maps instruction addresses to source lines.

mod source;

use std::collections::HashMap;
use std::ffi::CStr;

use addr2line::Loader;
use serde::Serialize;

/// A source line of a function. One instruction may have several frames: its function, and those
/// inlined into it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Frame {
    /// The function with its type parameters, as `Type::function` where the source could be read.
    pub function: String,
    /// The file, relative to the root of the repository if it is in the repository.
    pub file: String,
    /// The line; 0 if unknown.
    pub line: u32,
    /// The field that the line works on, as `Type.field`, if the source names one.
    #[serde(skip)]
    pub field: Option<String>,
}

/// Looks up instructions of this process in its debugging information.
pub struct Symbols {
    program: Option<Loader>,
    /// Difference between the load address and the linked address.
    moved_by: u64,
    known: HashMap<u64, Vec<Frame>>,
    sources: source::Sources,
}

impl Symbols {
    /// Loads the debugging information of this program. Without it, frames have no lines.
    #[must_use]
    pub fn new() -> Symbols {
        let program = std::env::current_exe().ok().and_then(|path| Loader::new(path).ok());
        Symbols {
            program,
            moved_by: moved_by(),
            known: HashMap::new(),
            sources: source::Sources::default(),
        }
    }

    /// Returns the frames of an instruction, innermost first.
    pub fn frames(&mut self, ip: u64) -> &[Frame] {
        let Symbols { program, moved_by, known, sources } = self;
        known.entry(ip).or_insert_with(|| find(program.as_ref(), *moved_by, sources, ip))
    }
}

impl Default for Symbols {
    fn default() -> Symbols {
        Symbols::new()
    }
}

fn find(
    program: Option<&Loader>,
    moved_by: u64,
    sources: &mut source::Sources,
    ip: u64,
) -> Vec<Frame> {
    let mut found = Vec::new();
    if let Some(mut frames) = program.and_then(|p| p.find_frames(ip.wrapping_sub(moved_by)).ok()) {
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref().and_then(|f| f.demangle().ok());
            let Some(function) = function else { continue };
            let location = frame.location.as_ref();
            let file = location.and_then(|l| l.file).unwrap_or("?");
            let line = location.and_then(|l| l.line).unwrap_or(0);
            let mut function = shorter(&function);
            let known = sources.at(file, line);
            if let Some(this) = &known.this
                && !function.contains("::")
            {
                function = format!("{this}::{function}");
            }
            found.push(Frame { function, file: from_root(file), line, field: known.field });
        }
    }
    if found.is_empty() {
        found.push(Frame { function: of_library(ip), file: "?".to_owned(), line: 0, field: None });
    }
    found
}

/// Removes the paths of type parameters, and the hash at the end.
fn shorter(function: &str) -> String {
    let function = without_paths(function);
    match function.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && u64::from_str_radix(hash, 16).is_ok() => {
            name.to_owned()
        }
        _ => function,
    }
}

/// Shortens `f<a::b::C, d::E>` to `f<C, E>`.
fn without_paths(function: &str) -> String {
    let Some((name, parameters)) = function.split_once('<') else { return function.to_owned() };
    let mut text = format!("{name}<");
    let mut word = String::new();
    for c in parameters.chars() {
        if c.is_alphanumeric() || "_:".contains(c) {
            word.push(c);
            continue;
        }
        text += word.rsplit("::").next().unwrap_or_default();
        text.push(c);
        word.clear();
    }
    text + word.rsplit("::").next().unwrap_or_default()
}

/// Strips the part before `crates/` or `lab/` from files of this repository, and the part before
/// the library's name from files of libraries.
fn from_root(file: &str) -> String {
    let after = |mark: &str| file.rfind(mark).map(|at| file[at + 1..].to_owned());
    if file.contains("/registry/src/") {
        let mut parts = file.split("/registry/src/").last().unwrap_or(file).splitn(2, '/');
        return parts.nth(1).unwrap_or(file).to_owned();
    }
    let marks = ["/library/", "/crates/", "/lab/"];
    marks.into_iter().find_map(after).unwrap_or_else(|| file.to_owned())
}

/// Returns the name of a function of a shared library, or `?`.
fn of_library(ip: u64) -> String {
    // SAFETY: all zeroes is a valid value, which `dladdr` fills.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let ip = std::ptr::without_provenance(ip as usize);
    // SAFETY: `dladdr` only looks the address up.
    if unsafe { libc::dladdr(ip, &mut info) } == 0 || info.dli_sname.is_null() {
        return "?".to_owned();
    }
    // SAFETY: the name is in the library's table, which stays loaded.
    unsafe { CStr::from_ptr(info.dli_sname) }.to_string_lossy().into_owned()
}

/// Returns the difference between the load address and the linked address of this program.
fn moved_by() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        found: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the linker passes a valid entry, and this function's caller the address of a
        // number. The first entry is the program's.
        unsafe { *found.cast::<u64>() = (*info).dlpi_addr };
        1
    }
    let mut found = 0u64;
    // SAFETY: the linker does not hold on to the function or the pointer after the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    found
}

#[cfg(test)]
mod tests;
