//! A key that is equal for two cases that differ in names only.

use std::collections::BTreeMap;

use crate::case::{Call, Op};
use crate::model::State;

/// Returns the key of a case: its observable state and its calls. For two calls of one kind, it is
/// the lesser of the keys of both orders, each with directories, names and slots numbered by
/// appearance.
pub(super) fn of(start: &State, first: &Call, second: &Call) -> String {
    let [first, second] = [first, second].map(|call| absolute(start, call));
    let as_it_is = written(start, &first, &second);
    if first.op.kind() != second.op.kind() {
        return as_it_is;
    }
    as_it_is.min(turned(start, &first, &second))
}

/// Makes the paths of a call absolute.
fn absolute(start: &State, call: &Call) -> Call {
    let paths = call.op.paths();
    let paths: Vec<_> = paths.iter().map(|path| start.absolute(call.process, path)).collect();
    Call { process: call.process, op: call.op.clone().with_paths(&paths) }
}

fn written(start: &State, first: &Call, second: &Call) -> String {
    let mut text = start.snapshot(0).text().to_owned();
    for call in [first, second] {
        text += &format!("{} {}\n", call.process, call.op);
    }
    text
}

/// Returns the key of the case with its calls exchanged.
fn turned(start: &State, first: &Call, second: &Call) -> String {
    let mut names = Names::default();
    for path in [second, first].iter().flat_map(|call| call.op.paths()) {
        names.see(path);
    }
    let two_processes = first.process != second.process;
    let two_slots = first.op.slot() != second.op.slot();
    let state = start.renamed(|path| names.new_path(path)).turned(two_processes, two_slots);
    let renamed = |call: &Call, place_of: &Call| {
        let paths: Vec<_> = call.op.paths().iter().map(|path| names.new_path(path)).collect();
        let op = call.op.clone().with_paths(&paths);
        Call { process: place_of.process, op: in_slots_of(op, &place_of.op) }
    };
    written(&state, &renamed(second, first), &renamed(first, second))
}

/// Replaces the slots of a call by the slots of another call of its kind.
fn in_slots_of(op: Op, other: &Op) -> Op {
    let new = match other {
        Op::Open { slot, .. } | Op::Pipe { reader: slot, .. } => *slot,
        _ => 0,
    };
    op.with_slots(other.slot().unwrap_or(0), new)
}

/// New names for directories, and for the names in each of them, numbered by appearance.
#[derive(Default)]
struct Names {
    dirs: BTreeMap<String, usize>,
    names: BTreeMap<(String, String), usize>,
}

impl Names {
    fn see(&mut self, path: &str) {
        let mut components = path.split('/').filter(|c| !c.is_empty());
        let Some(dir) = components.next().filter(|dir| is_dir(dir)) else { return };
        let count = self.dirs.len();
        self.dirs.entry(dir.into()).or_insert(count);
        let Some(name) = components.next() else { return };
        let count = self.names.keys().filter(|(d, _)| d == dir).count();
        self.names.entry((dir.into(), name.into())).or_insert(count);
    }

    /// Returns a path under the new names. Directories that were not seen get the last number.
    fn new_path(&self, path: &str) -> String {
        let mut components: Vec<_> = path.split('/').map(String::from).collect();
        let Some(dir) = components.get(1).filter(|dir| is_dir(dir)).cloned() else {
            return path.into();
        };
        let number = self.dirs.get(&dir).copied().unwrap_or(self.dirs.len());
        components[1] = format!("d{number}");
        if let Some(name) = components.get_mut(2)
            && let Some(number) = self.names.get(&(dir, name.clone()))
        {
            *name = char::from(b'a' + *number as u8).to_string();
        }
        components.join("/")
    }
}

/// Returns whether a name in the root belongs to a directory that can be renamed.
fn is_dir(name: &str) -> bool {
    name == "d0" || name == "d1"
}

#[cfg(test)]
mod tests;
