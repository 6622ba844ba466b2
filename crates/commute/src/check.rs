//! Does the library do what the model says?
//!
//! A model that says something else than the library does would count the wrong cases. So each case can be
//! made in the library as well, in both orders, and every outcome is compared: of the calls that lead to the
//! starting state, of the two calls, and of [`observations`](crate::model::State::observations) that see all
//! that is left. Where they differ, one of both is wrong, and what Linux does decides which.
//!
//! Inode numbers need not be the same, but one inode of the model is always one inode of the library, and
//! what is left has different numbers for different inodes. The same holds for file systems. On a volume, the
//! blocks that a file takes are not compared: there it is decided later which they are.

use std::collections::BTreeMap;

use crate::case::{Call, Case, Outcome};
use crate::execute::World;
use crate::model::State;

/// Makes a case in worlds of the library, in both orders, and compares it with the model.
///
/// # Errors
/// The first difference, in words.
pub fn check(
    case: &Case,
    mut world: impl FnMut() -> World,
    compares: Compares,
) -> Result<(), String> {
    for calls in [[&case.first, &case.second], [&case.second, &case.first]] {
        let mut run = Run { state: State::new(), world: world(), pairs: Pairs::new(compares) };
        for call in &case.setup {
            run.call(call)?;
        }
        run.state.note_times();
        run.world.note_times(&run.state.observations());
        for call in calls {
            run.call(call)?;
        }
        // A number may have been used again by now; from here on nothing comes or goes.
        run.pairs.forget_numbers();
        for call in run.state.observations() {
            run.call(&call)?;
        }
    }
    Ok(())
}

/// What the outcomes have to agree in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// All of it.
    All,
    /// All but the blocks that a file takes.
    NotBlocks,
}

/// A case under way in both.
struct Run {
    state: State,
    world: World,
    pairs: Pairs,
}

impl Run {
    fn call(&mut self, call: &Call) -> Result<(), String> {
        let expected = self.state.call(call);
        let given = self.world.call(call);
        if self.pairs.agree(&expected, &given) {
            return Ok(());
        }
        let Call { process, op } = call;
        let [expected, given] = [&expected, &given].map(short);
        Err(format!("{op} of process {process}: the model says {expected}, the library {given}"))
    }
}

/// Pages are not worth reading.
fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Bytes(bytes) => format!("{} bytes, {:?}", bytes.len(), bytes.first()),
        other => format!("{other:?}"),
    }
}

/// Which numbers of the model stand for which of the library.
struct Pairs {
    compares: Compares,
    inodes: Numbers<(u64, u64)>,
    devices: Numbers<u64>,
}

impl Pairs {
    fn new(compares: Compares) -> Pairs {
        Pairs { compares, inodes: Numbers::new(), devices: Numbers::new() }
    }

    fn forget_numbers(&mut self) {
        self.inodes.back.clear();
    }

    /// Whether an outcome of the model and one of the library are the same.
    fn agree(&mut self, expected: &Outcome, given: &Outcome) -> bool {
        match (expected, given) {
            (Outcome::Attributes(expected), Outcome::Attributes(given)) => {
                let mut same = given.clone();
                (same.device, same.ino) = (expected.device, expected.ino);
                if self.compares == Compares::NotBlocks {
                    same.blocks = expected.blocks;
                }
                let [expected_id, given_id] = [expected, given].map(|of| (of.device, of.ino));
                same == *expected
                    && self.devices.pair(expected.device, given.device)
                    && self.inodes.pair(expected_id, given_id)
            }
            (Outcome::Entries(expected), Outcome::Entries(given)) => {
                expected.len() == given.len()
                    && expected.iter().zip(given).all(|(expected, given)| {
                        expected.name == given.name && expected.file_type == given.file_type
                    })
            }
            (
                Outcome::Mount { device: expected, is_root: expected_root },
                Outcome::Mount { device: given, is_root: given_root },
            ) => expected_root == given_root && self.devices.pair(*expected, *given),
            _ => expected == given,
        }
    }
}

/// Numbers of one kind, and what they stand for.
struct Numbers<T> {
    there: BTreeMap<T, T>,
    back: BTreeMap<T, T>,
}

impl<T: Ord + Copy> Numbers<T> {
    fn new() -> Numbers<T> {
        Numbers { there: BTreeMap::new(), back: BTreeMap::new() }
    }

    /// Whether two numbers stand for each other, or can from now on.
    fn pair(&mut self, expected: T, given: T) -> bool {
        let there = *self.there.entry(expected).or_insert(given);
        let back = *self.back.entry(given).or_insert(expected);
        there == given && back == expected
    }
}

#[cfg(test)]
mod tests;
