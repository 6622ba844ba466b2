//! Compares the library with the model.
//!
//! A model that differs from the library would select the wrong cases. So each case can be made in
//! the library as well, in both orders. Every outcome is compared: of the set-up, of the two calls,
//! and of [`observations`](crate::model::State::observations) of the state they leave. If outcomes
//! differ, the model or the library is wrong; Linux's behaviour decides which.
//!
//! Inode numbers may differ, but each inode of the model must correspond to one inode of the
//! library, and different inodes that exist at the end must have different numbers. The same holds
//! for device numbers. On a volume, the allocated blocks of a file are not compared, because
//! allocation is delayed there.

use std::collections::BTreeMap;

use crate::case::{Call, Case, Outcome};
use crate::execute::World;
use crate::model::State;

/// Makes a case in worlds of the library, in both orders, and compares it with the model.
///
/// # Errors
/// Describes the first difference.
pub fn check(
    case: &Case,
    mut world: impl FnMut() -> World,
    compares: Compares,
) -> Result<(), String> {
    for calls in [[&case.first, &case.second], [&case.second, &case.first]] {
        let mut run =
            Run { state: State::new(), world: world(), pairs: Correspondence::new(compares) };
        for call in &case.setup {
            run.call(call)?;
        }
        run.state.note_times();
        run.world.note_times(&run.state.observations());
        for call in calls {
            run.call(call)?;
        }
        // A number may have been reused up to here. The observations below create and remove
        // nothing.
        run.pairs.forget_numbers();
        for call in run.state.observations() {
            run.call(&call)?;
        }
    }
    Ok(())
}

/// Extent of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// All attributes.
    All,
    /// All attributes except the allocated blocks.
    NotBlocks,
}

/// A case in progress, in the model and in the library.
struct Run {
    state: State,
    world: World,
    pairs: Correspondence,
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

/// Formats an outcome with its data shortened.
fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Bytes(bytes) => format!("{} bytes, {:?}", bytes.len(), bytes.first()),
        other => format!("{other:?}"),
    }
}

/// Correspondence between numbers of the model and of the library.
struct Correspondence {
    compares: Compares,
    inodes: Bijection<(u64, u64)>,
    devices: Bijection<u64>,
}

impl Correspondence {
    fn new(compares: Compares) -> Correspondence {
        Correspondence { compares, inodes: Bijection::new(), devices: Bijection::new() }
    }

    fn forget_numbers(&mut self) {
        self.inodes.back.clear();
    }

    /// Returns whether an outcome of the model and one of the library agree.
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

/// A one-to-one mapping between numbers of one kind.
struct Bijection<T> {
    there: BTreeMap<T, T>,
    back: BTreeMap<T, T>,
}

impl<T: Ord + Copy> Bijection<T> {
    fn new() -> Bijection<T> {
        Bijection { there: BTreeMap::new(), back: BTreeMap::new() }
    }

    /// Returns whether two numbers correspond; establishes it if both are new.
    fn pair(&mut self, expected: T, given: T) -> bool {
        let there = *self.there.entry(expected).or_insert(given);
        let back = *self.back.entry(given).or_insert(expected);
        there == given && back == expected
    }
}

#[cfg(test)]
mod tests;
