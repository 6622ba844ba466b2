//! Whether the documents name what is really there.
//!
//! * Every lock class of the code stands in the table of `docs/LOCKING.md`, with its rank and name,
//!   and the table has no other ([`lock_classes`], [`table_of_classes`]). Ranks rise along the tree
//!   of locks in front of it ([`tree_complaints`]).
//! * A code span that looks like a path of the repository is one, and a span `file.rs::name` names
//!   something that stands in that file; links lead somewhere ([`broken_references`]).
//! * The folder tree in `docs/ARCHITECTURE.md` has paths that exist ([`tree_paths`]).

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A class of locks, as `lock_class!` declares it or as a table tells it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The rank.
    pub rank: u16,
    /// The type.
    pub class: String,
    /// The name in reports.
    pub name: String,
}

/// Returns the lock classes that a Rust file declares; none for a file that cannot be parsed, which
/// [`sources`](crate::sources) reports.
pub fn lock_classes(text: &str) -> Vec<Class> {
    let mut found = Vec::new();
    if let Ok(tokens) = text.parse() {
        invocations(tokens, &mut found);
    }
    found
}

/// Looks for `lock_class! { ... }` at every depth.
fn invocations(tokens: TokenStream, found: &mut Vec<Class>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    for window in trees.windows(3) {
        if let [TokenTree::Ident(name), TokenTree::Punct(bang), TokenTree::Group(body)] = window
            && name == "lock_class"
            && bang.as_char() == '!'
        {
            declarations(body.stream(), found);
        }
    }
    for tree in trees {
        if let TokenTree::Group(group) = tree {
            invocations(group.stream(), found);
        }
    }
}

/// Collects the declarations `Name = ("text", rank)` of one invocation.
fn declarations(tokens: TokenStream, found: &mut Vec<Class>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    for window in trees.windows(3) {
        if let [TokenTree::Ident(class), TokenTree::Punct(equals), TokenTree::Group(value)] = window
            && equals.as_char() == '='
            && value.delimiter() == Delimiter::Parenthesis
        {
            let value = value.stream().to_string();
            let (name, rank) = value.rsplit_once(',').unwrap_or((&value, ""));
            found.push(Class {
                rank: rank.trim().parse().unwrap_or(u16::MAX),
                class: class.to_string(),
                name: name.trim().trim_matches('"').to_string(),
            });
        }
    }
}

/// Returns the classes of a Markdown table whose rows begin with a rank, a class and a name, in the
/// order of the table.
pub fn table_of_classes(markdown: &str) -> Vec<Class> {
    let row = |line: &str| {
        let mut cells =
            line.strip_prefix('|')?.split('|').map(|cell| cell.trim().trim_matches('`'));
        let rank = cells.next()?.parse().ok()?;
        Some(Class { rank, class: cells.next()?.to_string(), name: cells.next()?.to_string() })
    };
    markdown.lines().filter_map(row).collect()
}

/// Returns what is wrong with the first fenced block of a document as a tree of locks: names that
/// are not in `classes`, and locks whose rank is not above that of the lock which they stand under.
///
/// A line begins with the names of one or several locks; more indentation is further down the tree.
pub fn tree_complaints(markdown: &str, classes: &[Class]) -> Vec<String> {
    let block = markdown.split("```").nth(1).unwrap_or_default();
    let mut found = Vec::new();
    let mut held: Vec<(usize, u16)> = Vec::new();
    for line in block.lines().skip(1).filter(|line| !line.starts_with('(')) {
        let indent = line.len() - line.trim_start().len();
        held.retain(|(outer, _)| *outer < indent);
        let over = held.last().map_or(0, |(_, rank)| *rank);
        let names = line.trim_start().split("  ").next().unwrap_or_default();
        for name in names.trim_end_matches(" *").split(", ") {
            match classes.iter().find(|class| class.name == name) {
                None => found.push(format!("{name}: no such lock")),
                Some(class) if class.rank <= over => found.push(format!("{name}: too low a rank")),
                Some(class) => held.push((indent, class.rank)),
            }
        }
    }
    found
}

/// Returns the paths of a folder tree: of the fenced block that begins with `crates/`. A line
/// begins with the name of a folder or file, below the last line with less indentation.
pub fn tree_paths(markdown: &str) -> Vec<String> {
    let block = markdown.split("```text\ncrates/\n").nth(1).unwrap_or_default();
    let mut above: Vec<(usize, String)> = vec![(0, "crates/".to_owned())];
    let mut found = Vec::new();
    for line in block.lines().take_while(|line| !line.starts_with("```")) {
        let Some(name) = line.split_whitespace().next() else { continue };
        let indent = line.len() - line.trim_start().len();
        above.retain(|(outer, _)| *outer < indent);
        let path = above.last().map_or("", |(_, path)| path).to_owned() + name;
        found.push(path.clone());
        above.push((indent, path));
    }
    found
}

/// Where a reference may lead: the folders of the repository that the documents speak of.
const FOLDERS: &[&str] = &["bindings/", "crates/", "lab/", "docs/", "scripts/", ".ci/"];

/// Returns the references of a document that lead nowhere. `read` returns the text of a file of the
/// repository, an empty one for a folder, and `None` for a path that does not exist.
pub fn broken_references(markdown: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for span in code_spans(markdown) {
        let (path, item) = span.split_once("::").unwrap_or((&span, ""));
        if !FOLDERS.iter().any(|folder| path.starts_with(folder)) || path.contains([' ', '*', '<'])
        {
            continue;
        }
        match read(path) {
            None => found.push(format!("`{span}`: no such file")),
            Some(text) if !has_word(&text, item) => {
                found.push(format!("`{span}`: the file has no {item}"));
            }
            Some(_) => {}
        }
    }
    for target in link_targets(markdown) {
        if read(target.split('#').next().unwrap_or_default()).is_none() {
            found.push(format!("({target}): a link to nothing"));
        }
    }
    found
}

/// Returns the text between backquotes, outside of fenced blocks.
fn code_spans(markdown: &str) -> Vec<String> {
    let mut fenced = false;
    let mut spans = Vec::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            spans.extend(line.split('`').skip(1).step_by(2).map(str::to_string));
        }
    }
    spans
}

/// Returns the targets of links that stay in the repository.
fn link_targets(markdown: &str) -> Vec<&str> {
    markdown
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .filter(|link| !link.contains("://") && !link.starts_with('#'))
        .collect()
}

/// Returns whether `text` contains `word` as a whole word; the empty word always.
fn has_word(text: &str, word: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    word.is_empty() || text.split(|c| !is_inside(c)).any(|found| found == word)
}

#[cfg(test)]
mod tests;
