//! The triangle of calls by calls as SVG.
//!
//! Each pair of calls has a square, which is darker the larger the share of its conflicting cases
//! is and shows their number.

use std::fmt::Write;

use vfscale_bench::html::escape;

use crate::report::Report;

/// Side of a square, in pixels.
const SIDE: usize = 26;
/// Space for the names of rows.
const LEFT: usize = 90;
/// Space above the columns.
const TOP: usize = 90;

/// Renders the picture.
#[must_use]
pub fn svg(report: &Report) -> String {
    let calls = report.calls();
    let (width, height) = (LEFT + SIDE * calls.len() + 60, TOP + SIDE * calls.len() + 10);
    // Writing to a string can't fail, here and below.
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"16\">{}</text>\n",
        escape(&report.summary())
    );
    for (row, a) in calls.iter().enumerate() {
        let y = TOP + SIDE * row;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{a}</text>",
            LEFT - 6,
            y + SIDE / 2 + 4
        );
        let x = LEFT + SIDE * row + SIDE / 2;
        let _ = writeln!(
            svg,
            "<text transform=\"translate({x} {}) rotate(-50)\">{a}</text>",
            TOP + SIDE * row - 6
        );
        for (column, b) in calls[..=row].iter().enumerate() {
            put_square(&mut svg, report, (LEFT + SIDE * column, y), a, b);
        }
    }
    svg + "</svg>\n"
}

fn put_square(svg: &mut String, report: &Report, (x, y): (usize, usize), a: &str, b: &str) {
    let Some(pair) = report.pair(a, b) else { return };
    let conflicting = pair.cases - pair.free;
    let (fill, ink) = match conflicting as f64 / pair.cases.max(1) as f64 {
        0.0 => ("#e9f3ec", "#888"),
        ..0.1 => ("#fde0b5", "#333"),
        ..0.5 => ("#f0a35c", "#222"),
        _ => ("#d55e00", "#fff"),
    };
    let side = SIDE - 2;
    let _ = writeln!(
        svg,
        "<g><title>{a}, {b}: {conflicting} of {} cases conflict</title><rect x=\"{x}\" y=\"{y}\" \
         width=\"{side}\" height=\"{side}\" fill=\"{fill}\"/><text x=\"{}\" y=\"{}\" fill=\"{ink}\" \
         text-anchor=\"middle\" font-size=\"10\">{}</text></g>",
        pair.cases,
        x + side / 2,
        y + side / 2 + 4,
        if conflicting == 0 { "&#183;".to_owned() } else { conflicting.to_string() }
    );
}
