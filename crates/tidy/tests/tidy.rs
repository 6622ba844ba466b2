//! The rules of the house, applied to this repository.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use vfscale_tidy::sources::Source;
use vfscale_tidy::{arrows, documents, prose, races, rooms, root, sources};

/// Every file below a folder of the repository, as a path from the root, and its text; what is not
/// text is left out.
fn files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push((path.strip_prefix(root()).unwrap().display().to_string(), text));
            }
        }
    }
    found
}

/// The folders with sources: the house, and the laboratory beside it.
const FOLDERS: [&str; 3] = ["bindings", "crates", "lab"];

fn rust_files() -> Vec<(String, String)> {
    let all = FOLDERS.iter().flat_map(|folder| files(folder));
    let all: Vec<_> = all.filter(|(path, _)| path.ends_with(".rs")).collect();
    assert!(all.len() > 50, "only {} Rust files seen", all.len());
    all
}

/// The text of a file, an empty one for a folder.
fn read(path: &str) -> Option<String> {
    let path = root().join(path);
    if path.is_dir() { Some(String::new()) } else { fs::read_to_string(path).ok() }
}

fn report(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn arrows_point_down() {
    let (mut crates, mut arrows) = (Vec::new(), Vec::new());
    for workspace in ["", "bindings/containerd", "bindings/mcp", "bindings/wasi", "lab"] {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(root().join(workspace).join("Cargo.toml"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata = serde_json::from_slice(&output.stdout).unwrap();
        let of_workspace = arrows::arrows(&metadata);
        crates.extend(of_workspace.0);
        arrows.extend(of_workspace.1);
    }
    assert!(crates.iter().any(|name| name == "vfscale-cli"));
    assert!(arrows.iter().any(|arrow| arrow.to == "vfscale-sync"));
    report(arrows::complaints(&crates, &arrows));
}

#[test]
fn files_are_short() {
    // Programs write these.
    let written = |path: &str| path.ends_with(".lock") || path.ends_with("include/vfscale.h");
    let text = |(path, _): &(String, String)| !written(path);
    let all = FOLDERS.iter().chain(&["docs", "scripts", ".ci"]).flat_map(|folder| files(folder));
    let all: Vec<_> = all.filter(text).collect();
    let source = |(path, text): &(String, String)| {
        sources::length_complaint(Source { path: path.as_str(), text: text.as_str() })
    };
    report(all.iter().filter_map(source).collect());
}

#[test]
fn sources_keep_the_rules() {
    let check = |(path, text): &(String, String)| sources::complaints(Source { path, text });
    report(rust_files().iter().flat_map(check).collect());
}

/// A file that has gone, or needs no `unsafe` any more, leaves the list.
#[test]
fn files_that_may_be_unsafe_are() {
    let stale = |(path, _): &&(&str, &str)| !read(path).is_some_and(|t| t.contains("unsafe"));
    let stale = sources::UNSAFE_FILES.iter().filter(stale);
    report(stale.map(|(path, _)| format!("{path}: no `unsafe` there any more")).collect());
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let all = FOLDERS.iter().flat_map(|folder| files(folder));
    let manifests =
        all.filter(|(path, text)| path.ends_with("Cargo.toml") && !text.contains("[workspace]\n"));
    let lax = manifests.filter(|(_, text)| !text.contains("[lints]\nworkspace = true"));
    report(lax.map(|(path, _)| format!("{path}: [lints] workspace = true")).collect());
}

#[test]
fn locking_md_has_every_lock_class() {
    let sources = rust_files();
    let is_code = |path: &str| path.contains("/src/") && !path.ends_with("tests.rs");
    let code = sources.iter().filter(|(path, _)| is_code(path));
    let declared: BTreeSet<_> = code.flat_map(|(_, t)| documents::lock_classes(t)).collect();
    assert!(declared.len() > 10, "only {declared:?} found");
    let page = read("docs/LOCKING.md").unwrap();
    let told = documents::table_of_classes(&page);
    assert!(told.is_sorted(), "the table goes by rank");
    report(documents::tree_complaints(&page, &told));
    let told: BTreeSet<_> = told.into_iter().collect();
    let missing = declared.difference(&told).map(|class| format!("not in the table: {class:?}"));
    let stale = told.difference(&declared).map(|class| format!("not in the code: {class:?}"));
    report(missing.chain(stale).collect());
}

#[test]
fn documents_name_what_is_there() {
    let is_document = |path: &Path| path.extension().is_some_and(|ending| ending == "md");
    let top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let top = top.filter(|path| is_document(path));
    let all = top.chain(files("docs").into_iter().map(|(path, _)| root().join(path)));
    let mut found = Vec::new();
    for path in all.filter(|path| is_document(path)) {
        let name = path.strip_prefix(root()).unwrap();
        // Links are relative to the document, code spans to the root.
        let folder = name.parent().unwrap();
        let look = |to: &str| read(to).or_else(|| read(&folder.join(to).display().to_string()));
        let broken = documents::broken_references(&fs::read_to_string(&path).unwrap(), look);
        found.extend(broken.into_iter().map(|broken| format!("{}: {broken}", name.display())));
    }
    report(found);
}

#[test]
fn the_book_has_every_document() {
    let summary = read("docs/SUMMARY.md").unwrap();
    let pages = files("docs").into_iter().filter_map(|(path, _)| {
        let page = path.strip_prefix("docs/")?.to_owned();
        let is_run = page.starts_with("results/") && page != "results/README.md";
        (page.ends_with(".md") && page != "SUMMARY.md" && !is_run).then_some(page)
    });
    let absent = pages.filter(|page| !summary.contains(&format!("({page})")));
    let mut found: Vec<_> =
        absent.map(|page| format!("docs/SUMMARY.md: no link to {page}")).collect();
    // Pages of refused ideas have their number before the title.
    for (title, page) in summary.lines().filter_map(|line| line.split_once("](refused/0")) {
        let (title, page) = (title.trim_start_matches("  - ["), page.trim_end_matches(')'));
        let text = read(&format!("docs/refused/0{page}")).unwrap();
        let heading = text.lines().next().and_then(|line| line.split_once(". "));
        if heading.is_none_or(|(_, heading)| heading != title) {
            found.push(format!("docs/SUMMARY.md: `{title}` is not the title of refused/0{page}"));
        }
    }
    report(found);
}

/// The first cells of the guide's table are messages; `...` stands for what differs.
#[test]
fn messages_of_the_guide_are_in_the_sources() {
    let sources: String = rust_files().into_iter().map(|(_, text)| text).collect();
    let continued = sources.split("\\\n").map(str::trim_start).collect::<String>();
    let guide = read("docs/guides/troubleshooting.md").unwrap();
    let cells = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` "));
    let messages = cells.map(|(message, _)| message).filter(|message| message.contains(' '));
    let parts = messages.flat_map(|message| message.split("...")).map(str::trim);
    let absent = parts.filter(|part| !continued.contains(part));
    report(absent.map(|part| format!("troubleshooting.md: no source says {part:?}")).collect());
}

#[test]
fn the_folder_tree_is_there() {
    let paths = documents::tree_paths(&read("docs/ARCHITECTURE.md").unwrap());
    assert!(paths.len() > 20, "only {paths:?}");
    let absent = paths.iter().filter(|path| read(path).is_none());
    report(absent.map(|path| format!("docs/ARCHITECTURE.md: {path}: no such path")).collect());
}

/// Returns the tests of the repository with the races that their comments name.
fn tests_of_races() -> Vec<races::Test> {
    let mut sources = rust_files();
    sources.retain(|(path, _)| !path.starts_with("crates/tidy/"));
    sources.sort();
    sources.iter().flat_map(|(path, text)| races::tests(path, text)).collect()
}

/// Writes the tables to the file that `VFSCALE_WRITE_RACES` names, for `scripts/races`.
#[test]
fn every_seam_names_its_parties() {
    let tests = tests_of_races();
    if let Some(file) = std::env::var_os("VFSCALE_WRITE_RACES") {
        fs::write(file, races::page(&tests)).unwrap();
    }
    let mut found = Vec::new();
    let mut seams = 0;
    for test in &tests {
        seams += test.seams.len();
        let silent = test.seams.iter().filter(|(_, parties)| parties.is_empty());
        let place = format!("{}::{}", test.path, test.name);
        found.extend(silent.map(|(seam, _)| format!("{place}: no parties of {seam}")));
    }
    assert!(seams > 20, "only {seams} seams");
    report(found);
}

#[test]
fn every_model_names_its_race() {
    let is_model = |test: &&races::Test| {
        ["/tests/shuttle", "/tests/loom"].iter().any(|folder| test.path.contains(folder))
    };
    let all = tests_of_races();
    let silent = all.iter().filter(is_model).filter(|test| test.races.is_empty());
    let complain = |test: &races::Test| format!("{}::{}: no `/// Race:`", test.path, test.name);
    report(silent.map(complain).collect());
}

/// Returns the imports between the files of a crate.
fn arrows_in(name: &str) -> BTreeSet<rooms::Arrow> {
    let above = if root().join("lab").join(name).exists() { "lab" } else { "crates" };
    let folder = format!("{above}/{name}/src");
    let files = files(&folder).into_iter().filter(|(path, _)| path.ends_with(".rs"));
    let inside = |path: String| path[folder.len() + 1..].to_string();
    let files: Vec<_> = files.map(|(path, text)| (inside(path), text)).collect();
    rooms::Crate::new(&files).arrows()
}

#[test]
fn folders_import_downward() {
    let mut found = Vec::new();
    for (name, order) in rooms::ROOMS {
        let arrows = arrows_in(name);
        assert!(arrows.len() > 10, "{name}: only {arrows:?}");
        found.extend(rooms::complaints(name, order, &arrows));
        found.extend(rooms::stale(name, &arrows));
    }
    report(found);
}

#[test]
fn files_import_each_other_in_few_circles() {
    let crates = ["crates", "lab"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let crates = crates.into_iter().flatten().map(Result::unwrap);
    let crates = crates.filter(|entry| entry.path().join("src").exists());
    let mut crates: Vec<_> = crates.map(|entry| entry.file_name()).collect();
    crates.sort();
    let known = rooms::CIRCLES;
    let mut found = Vec::new();
    for name in crates.iter().filter_map(|name| name.to_str()) {
        found.extend(rooms::circle_complaints(name, known, &arrows_in(name)));
    }
    let absent = known.iter().filter(|(name, ..)| !crates.iter().any(|krate| krate == name));
    found.extend(absent.map(|(name, ..)| format!("{name}: no such crate (CIRCLES)")));
    if rooms::CIRCLES.len() > rooms::CIRCLES_MAX {
        found.push(format!(
            "CIRCLES: {} entries, {} at most",
            rooms::CIRCLES.len(),
            rooms::CIRCLES_MAX
        ));
    }
    report(found);
}

#[test]
fn comments_begin_with_their_subject() {
    let check = |(path, text): &(String, String)| prose::openings(Source { path, text });
    report(rust_files().iter().flat_map(check).collect());
}

#[test]
fn examples_are_compiled() {
    let check = |(path, text): &(String, String)| prose::uncompiled(Source { path, text });
    report(rust_files().iter().flat_map(check).collect());
}

#[test]
fn functions_begin_with_a_verb() {
    let mut crates = BTreeMap::<String, prose::Summaries>::new();
    for (path, text) in rust_files() {
        let of_file = prose::Summaries::of(Source { path: &path, text: &text });
        let of_crate = crates.entry(path.split('/').nth(1).unwrap().into()).or_default();
        of_crate.documented += of_file.documented;
        of_crate.with_verb += of_file.with_verb;
    }
    let few = crates.iter().filter(|(_, of)| of.percent() < prose::VERBS_PERCENT_MIN);
    let complain = |(name, of): (&String, &prose::Summaries)| {
        format!("{name}: {} % of its functions begin with a verb ({of:?})", of.percent())
    };
    report(few.map(complain).collect());
}
