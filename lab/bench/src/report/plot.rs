//! Plots in the form of the documents: time or throughput against the number of workers, with and
//! without the patches in one picture.
//!
//! Where the document plots total time ([`PIGGIN`], [`KARA`]), these plots show the time of an
//! operation: a workload that scales perfectly is a flat line. All others show throughput. AIM7 is
//! plotted against users. Each point is the median of the rounds, with a bar from the smallest to
//! the largest.
//!
//! The pictures are SVG, whose text is drawn by whoever shows them: measured machines seldom have
//! fonts.

use std::fmt;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use vfscale::PATCHES;

use super::table;
use crate::base::results::{CaseResult, Report};
use crate::base::stats::Spread;
use crate::published::{KARA, PIGGIN};
use crate::targets::TargetSpec;
use crate::workloads::{self, Description};

const SIZE: (u32, u32) = (720, 440);
const FONT: &str = "sans-serif";

/// Colours that the colour-blind can distinguish, too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A failure to draw or write a plot.
#[derive(Debug)]
pub struct PlotError(String);

impl PlotError {
    pub(crate) fn new(reason: String) -> PlotError {
        PlotError(reason)
    }
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlotError {}

fn failed(e: impl fmt::Display) -> PlotError {
    PlotError(e.to_string())
}

/// The plot of a workload: named lines of points.
struct Picture {
    title: String,
    x: &'static str,
    y: String,
    lines: Vec<(String, Vec<(f64, Spread)>)>,
}

/// Returns whether the document of a workload plots or lists time.
fn is_time(workload: &Description) -> bool {
    matches!(workload.source, KARA | PIGGIN)
}

fn value(workload: &Description, result: &CaseResult) -> Spread {
    if let Some(rate) = &result.source_rate {
        return rate.rate;
    }
    if !is_time(workload) {
        return result.ops_per_s;
    }
    let nanos = |rate: f64| 1e9 * result.case.threads as f64 / rate;
    let rate = result.ops_per_s;
    Spread { median: nanos(rate.median), min: nanos(rate.max), max: nanos(rate.min) }
}

/// Returns how many patches affect a target.
fn known_patches(target: &str) -> usize {
    let known = |target: TargetSpec| PATCHES.iter().filter(|patch| target.has_patch(patch)).count();
    TargetSpec::parse(target).map_or(0, known)
}

fn line_name(result: &CaseResult) -> String {
    let case = &result.case;
    let mut name = case.target.clone();
    if let Some(readers) = case.readers {
        name += &format!(", {} writers", case.threads - readers);
    }
    if case.users.is_some() {
        name += &format!(" x{}", case.threads);
    }
    match case.before.len() {
        0 => {}
        n if n == known_patches(&case.target) => name += ", before all patches",
        _ => name += &format!(", before {}", case.before.join("+")),
    }
    name
}

impl Picture {
    fn of(report: &Report, workload: &Description) -> Option<Picture> {
        let mut lines: Vec<(String, Vec<(f64, Spread)>)> = Vec::new();
        let results = report.results.iter().filter(|r| r.case.workload == workload.name);
        let mut axis = "CPUs used";
        let mut rate = None;
        for result in results {
            let case = &result.case;
            axis = match (case.users, case.readers) {
                (Some(_), _) => "users",
                (_, Some(_)) => "readers",
                _ if result.cpus_pretended.is_some() => "CPUs that structures are made for",
                _ => axis,
            };
            // A rate of reads alone has another unit.
            if case.readers == Some(case.threads) {
                continue;
            }
            rate = result.source_rate.as_ref().map(|rate| rate.unit.clone());
            let x = case.users.or(case.readers).or(result.cpus_pretended);
            let x = x.unwrap_or(case.threads) as f64;
            let (name, point) = (line_name(result), (x, value(workload, result)));
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name, vec![point])),
            }
        }
        for (_, points) in &mut lines {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let y = match rate {
            Some(unit) => format!("{unit} (higher is better)"),
            None if is_time(workload) => format!("ns per {} (lower is better)", workload.unit),
            None => format!("{}/s (higher is better)", workload.unit),
        };
        let title = format!("{} ({})", workload.name, workload.source);
        (!lines.is_empty()).then_some(Picture { title, x: axis, y, lines })
    }

    fn points(&self) -> impl Iterator<Item = &(f64, Spread)> {
        self.lines.iter().flat_map(|(_, points)| points)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), PlotError> {
        area.fill(&WHITE).map_err(failed)?;
        let top = self.points().map(|(_, y)| y.max).fold(0.0, f64::max).max(1e-9);
        // Room for the legend above the lines.
        let top = top * (1.1 + 0.08 * self.lines.len() as f64);
        let right = self.points().map(|(x, _)| *x).fold(1.0, f64::max);
        let left = self.points().map(|(x, _)| *x).fold(right, f64::min);
        let margin = ((right - left) * 0.08).max(right * 0.05);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(88)
            .build_cartesian_2d(left - margin..right + margin, 0.0..top)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(&self.y)
            .x_labels(8)
            .x_label_formatter(&|x| whole(*x))
            .y_label_formatter(&|y| table::number(*y))
            .light_line_style(WHITE)
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()
            .map_err(failed)?;
        for ((name, points), colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let line = points.iter().map(|(x, y)| (*x, y.median));
            chart
                .draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))
                .map_err(failed)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            chart
                .draw_series(line.map(|at| Circle::new(at, 4, colour.filled())))
                .map_err(failed)?;
            let bars = points
                .iter()
                .map(|(x, y)| PathElement::new([(*x, y.min), (*x, y.max)], colour.stroke_width(1)));
            chart.draw_series(bars).map_err(failed)?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(160, 160, 160))
            .label_font((FONT, 13))
            .position(SeriesLabelPosition::UpperRight)
            .draw()
            .map_err(failed)?;
        area.present().map_err(failed)
    }
}

/// Formats a whole number; returns no label for fractions, since workers and users are whole.
fn whole(x: f64) -> String {
    if (x - x.round()).abs() < 1e-6 {
        table::number(x).replace(".00", "").replace(".0", "")
    } else {
        String::new()
    }
}

/// Draws the plot of a workload as SVG; returns `None` if the report has no result of it.
///
/// # Errors
/// Returns an error if the plot can't be drawn.
pub fn svg(report: &Report, workload: &Description) -> Result<Option<String>, PlotError> {
    let Some(picture) = Picture::of(report, workload) else { return Ok(None) };
    let mut text = String::new();
    picture.draw(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
    Ok(Some(text))
}

/// Writes the plots of all workloads in the report to `dir`, as SVG. Returns their number.
///
/// # Errors
/// Returns an error if a plot can't be drawn or written.
pub fn write_all(report: &Report, dir: &Path) -> Result<usize, PlotError> {
    let mut count = 0;
    for workload in workloads::ALL {
        let Some(picture) = Picture::of(report, workload) else { continue };
        let svg = dir.join(format!("{}.svg", workload.name));
        picture.draw(&SVGBackend::new(&svg, SIZE).into_drawing_area())?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
