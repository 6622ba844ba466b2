//! Shrinks a sequence to the shortest and simplest one that shows the same kind of finding.

use std::sync::Arc;

use proptest::strategy::ValueTree;

use crate::calls::op::Step;
use crate::calls::outcome::Outcome;
use crate::generate::{Candidate, tame};

/// Maximum number of attempts to simplify one step.
const SIMPLER_MAX: u32 = 120;

/// Something that a sequence has shown.
pub trait Finding {
    /// Returns its kind.
    fn signature(&self) -> &str;

    /// Returns the number of the step that showed it.
    fn at(&self) -> usize;

    /// Returns the steps before, with their outcomes.
    fn log(&self) -> &[(Step, Outcome)];
}

/// Shrinks `candidate`, which showed `finding`. `play` plays a sequence and returns what it shows.
/// It is called at most `plays_max` times.
///
/// # Errors
/// Returns the errors of `play`.
pub fn shrink<F: Finding>(
    candidate: Candidate,
    finding: F,
    plays_max: u32,
    play: impl FnMut(&Arc<Vec<Step>>) -> Result<Option<F>, String>,
) -> Result<(Vec<Step>, F), String> {
    let mut steps: Vec<_> = candidate.steps.into_iter().zip(candidate.trees).collect();
    // Steps after the finding are irrelevant.
    steps.truncate(finding.at() + 1);
    let mut hunt = Hunt { left: plays_max, play, best: finding };
    let mut kept = hunt.fewer(steps)?;
    hunt.simpler(&mut kept)?;
    // Each method may enable the other ones.
    let mut before = usize::MAX;
    while kept.len() < before {
        before = kept.len();
        kept = hunt.lower(kept)?;
        kept = hunt.fewer(kept)?;
    }
    Ok((kept.into_iter().map(|(step, _)| step).collect(), hunt.best))
}

/// Removes unnecessary items: halves first, then smaller runs, then single items until none can be
/// removed. It proceeds from the end, since later items use what earlier ones make. `same` decides
/// whether some of the items are enough.
///
/// # Errors
/// Returns the errors of `same`.
pub fn fewer<T, E>(
    mut items: Vec<T>,
    mut same: impl FnMut(&[&T]) -> Result<bool, E>,
) -> Result<Vec<T>, E> {
    let mut run = items.len().div_ceil(2).max(1);
    loop {
        let mut any = false;
        let mut end = items.len();
        while end > 0 {
            let start = end.saturating_sub(run);
            let rest: Vec<&T> = items[..start].iter().chain(&items[end..]).collect();
            if same(&rest)? {
                items.drain(start..end);
                any = true;
            }
            end = start;
        }
        match (run, any) {
            (1, false) => return Ok(items),
            (1, true) => {}
            _ => run = (run / 2).max(1),
        }
    }
}

type Part = (Step, Option<Box<dyn ValueTree<Value = Step>>>);

struct Hunt<P, F> {
    left: u32,
    play: P,
    best: F,
}

impl<F: Finding, P: FnMut(&Arc<Vec<Step>>) -> Result<Option<F>, String>> Hunt<P, F> {
    /// Returns whether these steps show the same kind of finding.
    fn same(&mut self, steps: Vec<Step>) -> Result<bool, String> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        match (self.play)(&Arc::new(steps))? {
            Some(found) if found.signature() == self.best.signature() => {
                self.best = found;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn fewer(&mut self, steps: Vec<Part>) -> Result<Vec<Part>, String> {
        fewer(steps, |rest| self.same(rest.iter().map(|(step, _)| step.clone()).collect()))
    }

    /// Removes calls that only occupy a descriptor, and lowers the descriptors above it by one.
    fn lower(&mut self, mut steps: Vec<Part>) -> Result<Vec<Part>, String> {
        for at in (0..steps.len()).rev() {
            let Some((Step { task, op, .. }, outcome)) = self.best.log().get(at) else { continue };
            let (true, Some(gone)) = (op.gives_lowest(), outcome.number()) else { continue };
            let task = *task;
            let mut fewer: Vec<Step> = steps.iter().map(|(step, _)| step.clone()).collect();
            fewer.remove(at);
            for step in fewer[at..].iter_mut().filter(|step| step.task == task) {
                for fd in step.op.descriptors_mut() {
                    *fd -= i32::from(i64::from(*fd) > gone);
                }
            }
            if self.same(fewer.clone())? {
                steps = fewer.into_iter().map(|step| (step, None)).collect();
            }
        }
        Ok(steps)
    }

    /// Simplifies single steps by proptest's proposals.
    fn simpler(&mut self, steps: &mut [Part]) -> Result<(), String> {
        for at in (0..steps.len()).rev() {
            let Some(mut tree) = steps[at].1.take() else { continue };
            let mut more = tree.simplify();
            let mut tries = SIMPLER_MAX;
            while more && tries > 0 {
                tries -= 1;
                let proposed = tame(tree.current());
                let mut all: Vec<_> = steps.iter().map(|(step, _)| step.clone()).collect();
                all[at] = proposed.clone();
                more = if proposed != steps[at].0 && self.same(all)? {
                    steps[at].0 = proposed;
                    tree.simplify()
                } else {
                    tree.complicate()
                };
            }
        }
        Ok(())
    }
}
