//! A form of `mountinfo` that is comparable between two implementations.
//!
//! Numbers of mounts, devices and peer groups differ between the sides. So a mount is identified by
//! the mount points on the path to it, and a group by the first mount in it. The type of the file
//! system, its source and its options are left out, except whether it is read-only.

use std::collections::HashMap;

/// The fields of a line.
struct Line<'a> {
    id: &'a str,
    parent: &'a str,
    root: &'a str,
    point: &'a str,
    options: &'a str,
    sharing: Vec<&'a str>,
    super_access: &'a str,
}

impl Line<'_> {
    fn parse(line: &str) -> Option<Line<'_>> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut words = mount.split(' ');
        let (id, parent, _) = (words.next()?, words.next()?, words.next()?);
        let (root, point, options) = (words.next()?, words.next()?, words.next()?);
        let super_options = file_system.split(' ').nth(2)?;
        let super_access = super_options.split(',').next()?;
        Some(Line { id, parent, root, point, options, sharing: words.collect(), super_access })
    }
}

/// Converts the kernel's lines to text. Bytes that are not UTF-8 are escaped like other special
/// characters, as vfscale does itself.
pub(crate) fn text(lines: &[u8]) -> String {
    let mut text = String::new();
    for chunk in lines.utf8_chunks() {
        text += chunk.valid();
        chunk.invalid().iter().for_each(|byte| text += &format!("\\{byte:03o}"));
    }
    text
}

/// Returns the mounts in a canonical order.
///
/// # Errors
/// Returns the first invalid line.
pub(crate) fn normal(text: &str) -> Result<Vec<String>, String> {
    let lines: Vec<Line<'_>> = text
        .lines()
        .map(|line| Line::parse(line).ok_or_else(|| line.to_owned()))
        .collect::<Result<_, _>>()?;
    let by_id: HashMap<&str, &Line<'_>> = lines.iter().map(|line| (line.id, line)).collect();
    let way = |line: &Line<'_>| {
        let mut points = vec![line.point.to_owned()];
        let (mut id, mut parent) = (line.id, line.parent);
        while let Some(above) = by_id.get(parent).filter(|_| id != parent) {
            points.push(above.point.to_owned());
            (id, parent) = (parent, above.parent);
        }
        points.reverse();
        points
    };
    let mut all: Vec<(Vec<String>, &Line<'_>)> =
        lines.iter().map(|line| (way(line), line)).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut groups: HashMap<&str, usize> = HashMap::new();
    let mut shown = Vec::new();
    for (way, line) in &all {
        let Line { root, options, super_access, .. } = line;
        let mut text = format!("{} shows {root} {options} on {super_access}", way.join(" > "));
        for word in &line.sharing {
            match word.split_once(':') {
                Some((kind, group)) => {
                    let next = groups.len() + 1;
                    let group = *groups.entry(group).or_insert(next);
                    text += &format!(" {kind}:{group}");
                }
                None => text += &format!(" {word}"),
            }
        }
        shown.push(text);
    }
    Ok(shown)
}

#[cfg(test)]
mod tests;
