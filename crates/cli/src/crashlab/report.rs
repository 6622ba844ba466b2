//! The findings of the laboratory, in words and as JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};
use vfscale_crashlab::{Fate, Lab, Line, State};

use super::children::Ended;
use crate::error::Failure;
use crate::output::written;

/// The most causes, and kept steps in a row, that are printed.
pub(super) const CAUSES: usize = 10;
const KEPT: usize = 5;

/// A state that fails the check, and that no other one explains.
pub(super) struct Cause {
    pub(super) state: State,
    pub(super) ended: Ended,
}

/// The outcome.
pub(super) struct Report<'a> {
    pub(super) lab: &'a Lab,
    /// The number of different states, of those that were checked, and of those that have failed.
    pub(super) all: usize,
    pub(super) tried: usize,
    pub(super) failed: usize,
    pub(super) causes: Vec<Cause>,
}

impl Report<'_> {
    pub(super) fn print(&self, as_json: bool, with_output: bool) -> Result<ExitCode, Failure> {
        let mut out = io::stdout().lock();
        written(if as_json {
            let text = serde_json::to_string_pretty(&self.as_json()).map_err(io::Error::from);
            text.and_then(|text| writeln!(out, "{text}"))
        } else {
            self.write(&mut out, with_output)
        })
    }

    fn write(&self, out: &mut impl Write, with_output: bool) -> io::Result<()> {
        let Report { lab, all, tried, failed, causes } = self;
        let steps = lab.log().events().len();
        let of = if tried == all { String::new() } else { format!(" of {all}") };
        writeln!(
            out,
            "{steps} steps of the command; {tried}{of} states after a power cut, by the promises of {}: {failed} failed the check",
            lab.promise()
        )?;
        for (number, Cause { state, ended }) in causes.iter().enumerate().take(CAUSES) {
            let (number, cut) = (number + 1, state.cut());
            writeln!(out, "\n{number}. power cut after step {cut}: {ended}")?;
            write_story(out, &lab.story(state))?;
            if with_output {
                for line in ended.output().lines() {
                    writeln!(out, "  | {line}")?;
                }
            }
        }
        match causes.len().saturating_sub(CAUSES) {
            0 => Ok(()),
            more => writeln!(out, "\nand {more} more, which --json prints"),
        }
    }

    fn as_json(&self) -> Value {
        let Report { lab, all, tried, failed, causes } = self;
        let causes: Vec<Value> = causes.iter().map(|cause| cause.as_json(lab)).collect();
        json!({
            "promise": lab.promise().to_string(),
            "steps": lab.log().events().len(),
            "states": all,
            "checked": tried,
            "failed": failed,
            "causes": causes,
        })
    }
}

/// Writes a story, without the middle of long rows of steps that were kept.
fn write_story(out: &mut impl Write, story: &[Line]) -> io::Result<()> {
    for row in story.chunk_by(|one, next| (one.fate == Fate::Kept) == (next.fate == Fate::Kept)) {
        let is_long = row.len() > KEPT && row.iter().all(|line| line.fate == Fate::Kept);
        let (first, last) =
            if is_long { (KEPT - 2, row.len() - 1) } else { (row.len(), row.len()) };
        for line in &row[..first] {
            writeln!(out, "{line}")?;
        }
        if first < last {
            writeln!(out, "  kept  {} more", last - first)?;
        }
        for line in &row[last..] {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

impl Cause {
    fn as_json(&self, lab: &Lab) -> Value {
        let Cause { state, ended } = self;
        let story: Vec<Value> = lab.story(state).iter().map(line_as_json).collect();
        json!({
            "cut": state.cut(),
            "ended": ended.to_string(),
            "output": ended.output(),
            "story": story,
        })
    }
}

fn line_as_json(line: &Line) -> Value {
    let (fate, kept) = match line.fate {
        Fate::Kept => ("kept", None),
        Fate::Lost => ("lost", None),
        Fate::Torn(from, to) => ("torn", Some(json!([from, to]))),
    };
    let mut value = json!({ "step": line.number + 1, "text": line.text, "fate": fate });
    if let (Some(kept), Some(members)) = (kept, value.as_object_mut()) {
        members.insert("kept".into(), kept);
    }
    value
}
