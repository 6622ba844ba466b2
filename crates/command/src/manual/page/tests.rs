//! Tests of single pages.

use super::*;

fn shown(about: &'static str) -> String {
    let command = Command::new("tool-show").bin_name("tool show").version("1").long_about(about);
    String::from_utf8(page(command, "1", &["tool(7)"], &[]).unwrap()).unwrap()
}

#[test]
fn examples_have_a_line_each_and_quoted_semicolons_stay() {
    let page =
        shown("Show it\n\nExamples: tool show a; tool show 'b; c'\n\nExits as diff(1) does.");
    let examples = ".SH EXAMPLES\n.nf\ntool show a\ntool show \\(aqb; c\\(aq\n.fi\n";
    assert!(page.contains(examples), "{page}");
    assert_eq!(page.matches("tool show a").count(), 1, "{page}");
}

#[test]
fn the_exit_status_has_a_section_of_its_own() {
    let page = shown("Show it\n\nExits as diff(1) does.");
    assert!(page.contains(".SH \"EXIT STATUS\"\nExits as diff(1) does.\n"), "{page}");
    assert_eq!(page.matches("Exits").count(), 1, "{page}");
    let page = shown("Show it");
    assert!(page.contains(&format!(".SH \"EXIT STATUS\"\n{USUAL_STATUS}\n")), "{page}");
}

#[test]
fn a_page_refers_to_what_it_names() {
    let page =
        shown("Show it, as tool(1) and mkfs.x(8). See `tool copy-out DIR` and `tool --help`.");
    let last = page.split(".SH \"SEE ALSO\"\n").nth(1).unwrap();
    assert!(last.starts_with("mkfs.x(8), tool(1), tool(7), tool\\-copy\\-out(1)\n"), "{last}");
}
