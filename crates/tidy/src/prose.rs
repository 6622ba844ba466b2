//! How comments are written, as far as a program can tell.
//!
//! The documentation of a function begins with a verb in the third person ("Returns", "Frees"),
//! that of a type with a noun. No comment begins with a pronoun or a clause that makes the reader
//! look for its subject ([`BANNED_OPENINGS`]). An example of code is compiled: a `text` block has
//! none ([`uncompiled`]).

use syn::visit::{self, Visit};

use crate::sources::{Source, is_for_tests};

/// The least share of documented functions of a crate that begin with a verb, in percent.
pub const VERBS_PERCENT_MIN: usize = 85;

/// Words that no comment begins with.
pub const BANNED_OPENINGS: &[&str] = &[
    "As above",
    "As in",
    "As there",
    "Everybody",
    "It",
    "Nobody",
    "One that",
    "One who",
    "So many",
    "Somebody",
    "That of",
    "That which",
    "The same",
    "Those",
    "What",
    "Whatever",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
];

/// Words that end as a verb in the third person does, and are none where a summary begins.
const NOT_VERBS: &[&str] = &[
    "Always",
    "As",
    "Attributes",
    "Bits",
    "Bytes",
    "Entries",
    "Errors",
    "Extents",
    "Files",
    "Has",
    "Inodes",
    "Is",
    "Its",
    "Less",
    "Names",
    "Numbers",
    "Pages",
    "Perhaps",
    "Sometimes",
    "This",
    "Threads",
    "Thus",
    "Times",
    "Values",
    "Was",
];

/// Returns the comments of a file that begin with one of [`BANNED_OPENINGS`].
pub fn openings(source: Source<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (index, line) in source.text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        if let (Some(text), false) = (comment, is_inside) {
            let text = text.trim_start_matches(['/', '!', ' ']);
            let banned = BANNED_OPENINGS.iter().find(|words| begins_with(text, words));
            let complain = |words| format!("{}:{}: begins with {words:?}", source.path, index + 1);
            found.extend(banned.map(complain));
        }
        is_inside = comment.is_some();
    }
    found
}

/// Returns the statements in `text` blocks of documentation, which no compiler sees.
pub fn uncompiled(source: Source<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_text = false;
    for (index, line) in source.text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_text = false;
            continue;
        };
        let text = comment.trim_start_matches(['/', '!', ' ']);
        if text.starts_with("```") {
            is_text = !is_text && text == "```text";
        } else if is_text && (text.ends_with(");") || text.ends_with("?;")) {
            found.push(format!("{}:{}: code in a `text` block", source.path, index + 1));
        }
    }
    found
}

fn begins_with(text: &str, words: &str) -> bool {
    let rest = text.strip_prefix(words);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

/// Counts of the documented functions of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summaries {
    /// Functions with documentation; those of tests do not count.
    pub documented: usize,
    /// Functions whose documentation begins with a verb in the third person.
    pub with_verb: usize,
}

impl Summaries {
    /// Counts those of one file.
    pub fn of(source: Source<'_>) -> Summaries {
        let mut this = Summaries::default();
        if !source.is_test()
            && let Ok(file) = syn::parse_file(source.text)
        {
            this.visit_file(&file);
        }
        this
    }

    /// Returns the share of functions with a verb, in percent, rounded down.
    pub fn percent(self) -> usize {
        (100 * self.with_verb).checked_div(self.documented).unwrap_or(100)
    }

    fn add(&mut self, attributes: &[syn::Attribute]) {
        let Some(summary) = attributes.iter().find_map(doc) else { return };
        self.documented += 1;
        self.with_verb += usize::from(begins_with_verb(&summary));
    }
}

/// Returns the text of a line of documentation.
fn doc(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. })
            if pair.path.is_ident("doc") =>
        {
            Some(text.value().trim().to_string())
        }
        _ => None,
    }
}

/// Returns whether `text` begins with a word that has the form of a verb in the third person.
fn begins_with_verb(text: &str) -> bool {
    let end = text.find(|c: char| !(c.is_alphabetic() || c == '-')).unwrap_or(text.len());
    let word = &text[..end];
    word.starts_with(char::is_uppercase)
        && word.ends_with('s')
        && !word.ends_with("ss")
        && !NOT_VERBS.contains(&word)
}

impl<'ast> Visit<'ast> for Summaries {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.attrs);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.attrs);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.add(&item.attrs);
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests;
