//! Shrinks a sequence to the shortest and simplest one that shows the same kind of difference.

use std::sync::Arc;

use proptest::strategy::ValueTree;

use crate::calls::op::Step;
use crate::campaign::generate::{Candidate, tame};
use crate::campaign::lockstep::Difference;

/// Maximum number of attempts to simplify one step.
const SIMPLER_MAX: u32 = 120;

/// Shrinks `candidate`, which differed by `difference`. `play` plays a sequence and returns its
/// difference. It is called at most `plays_max` times.
///
/// # Errors
/// Returns the errors of `play`.
pub fn shrink(
    candidate: Candidate,
    difference: Box<Difference>,
    plays_max: u32,
    play: impl FnMut(&Arc<Vec<Step>>) -> Result<Option<Box<Difference>>, String>,
) -> Result<(Vec<Step>, Box<Difference>), String> {
    let signature = difference.signature.clone();
    let mut steps: Vec<_> = candidate.steps.into_iter().zip(candidate.trees).collect();
    // Steps after the difference are irrelevant.
    steps.truncate(difference.at + 1);
    let mut hunt = Hunt { signature, left: plays_max, play, best: difference };
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

type Part = (Step, Option<Box<dyn ValueTree<Value = Step>>>);

struct Hunt<P> {
    signature: String,
    left: u32,
    play: P,
    best: Box<Difference>,
}

impl<P: FnMut(&Arc<Vec<Step>>) -> Result<Option<Box<Difference>>, String>> Hunt<P> {
    /// Returns whether these steps show the same kind of difference.
    fn same(&mut self, steps: Vec<Step>) -> Result<bool, String> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        match (self.play)(&Arc::new(steps))? {
            Some(found) if found.signature == self.signature => {
                self.best = found;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Removes unnecessary steps: halves first, then smaller runs, then single steps until none can
    /// be removed. It proceeds from the end, since later steps use what earlier ones make.
    fn fewer(&mut self, mut steps: Vec<Part>) -> Result<Vec<Part>, String> {
        let mut run = steps.len().div_ceil(2).max(1);
        loop {
            let mut any = false;
            let mut end = steps.len();
            while end > 0 {
                let start = end.saturating_sub(run);
                let rest = steps[..start].iter().chain(&steps[end..]);
                if self.same(rest.map(|(step, _)| step.clone()).collect())? {
                    steps.drain(start..end);
                    any = true;
                }
                end = start;
            }
            match (run, any) {
                (1, false) => return Ok(steps),
                (1, true) => {}
                _ => run = (run / 2).max(1),
            }
        }
    }

    /// Removes calls that only occupy a descriptor, and lowers the descriptors above it by one.
    fn lower(&mut self, mut steps: Vec<Part>) -> Result<Vec<Part>, String> {
        for at in (0..steps.len()).rev() {
            let Some((Step { task, op, .. }, outcome)) = self.best.log.get(at) else { continue };
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
