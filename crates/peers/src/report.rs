//! Tables of ratios, with targets.

use crate::measure::Ratios;

/// The target of a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// A minimum.
    AtLeast(f64),
    /// No target: the ratio is for comparison only.
    None,
}

/// A printer of tables, row by row as they are measured, which counts missed targets.
#[derive(Debug, Default)]
pub struct Report {
    filter: Vec<String>,
    met: usize,
    missed: usize,
}

impl Report {
    /// Creates a report of the rows whose name contains one of `filter`, or of all if it is empty.
    pub fn new(filter: Vec<String>) -> Report {
        Report { filter, ..Report::default() }
    }

    /// Begins a table; `first` and `second` are the headers of the two columns of nanoseconds.
    pub fn table(&self, title: &str, first: &str, second: &str) {
        println!("\n{title}\n");
        println!(
            "{:<46} {:>7} {:>17} {:>17} {:>9} {:>9} {:>6} {:>4}  {:>7}",
            "", "ratio", "quartiles", "min..max", first, second, "share", "lost", "target"
        );
    }

    /// Returns whether a row is wanted.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|part| name.contains(part))
    }

    /// Measures and prints a row, if it is wanted.
    pub fn row(&mut self, name: &str, target: Target, measure: impl FnOnce() -> Option<Ratios>) {
        if !self.wants(name) {
            return;
        }
        let Some(ratios) = measure() else { return };
        let (low, high) = ratios.range();
        let (lower, upper) = ratios.quartiles();
        let verdict = match target {
            Target::None => String::new(),
            Target::AtLeast(target) if ratios.median() >= target => {
                self.met += 1;
                format!("{target:>7}  met")
            }
            Target::AtLeast(target) => {
                self.missed += 1;
                format!("{target:>7}  NOT met")
            }
        };
        println!(
            "{name:<46} {:>7.2} {:>17} {:>17} {:>6.0} ns {:>6.0} ns {:>5.0}% {:>4}  {verdict}",
            ratios.median(),
            format!("{lower:.2}..{upper:.2}"),
            format!("{low:.2}..{high:.2}"),
            ratios.nanos[0],
            ratios.nanos[1],
            100.0 * ratios.share,
            ratios.disturbed,
        );
    }

    /// Prints the numbers of met and missed targets.
    pub fn finish(&self) {
        println!("\n{} targets met, {} not met", self.met, self.missed);
    }
}
