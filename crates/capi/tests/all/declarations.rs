//! The declarations of a C header, as far as this crate's has some.

use std::collections::BTreeMap;

/// A function: its name, and its declaration on one line.
pub struct Function {
    pub name: String,
    pub declaration: String,
}

/// A field of a structure.
pub struct Field {
    pub name: String,
    pub c_type: String,
    pub offset: usize,
    pub size: usize,
}

/// Returns a header without comments and lines of the preprocessor.
pub fn code(header: &str) -> String {
    let mut code = String::new();
    for (index, part) in header.split("/*").enumerate() {
        code += if index == 0 { part } else { part.split_once("*/").map_or("", |(_, rest)| rest) };
    }
    let lines = code.lines().filter(|line| !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n").replace("extern \"C\" {", "")
}

/// Returns the text on one line, with single spaces.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the functions that a header declares.
pub fn functions(header: &str) -> Vec<Function> {
    let code = code(header);
    let end = |text: &str| text.rfind('}').map_or(0, |at| at + 1);
    let declared = code.split(';').map(|text| joined(&text[end(text)..]));
    let declared = declared.filter(|text| text.ends_with(')') && text.contains('('));
    declared
        .map(|declaration| {
            let before = declaration.split('(').next().unwrap();
            let name = before.rsplit([' ', '*']).next().unwrap().to_owned();
            Function { name, declaration }
        })
        .collect()
}

/// Returns the numbers that a header defines.
pub fn constants(header: &str) -> BTreeMap<String, String> {
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define "));
    let pairs = defined.filter_map(|line| line.split_once(' '));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the structures of a header with the offsets that compilers for 64 bits give their
/// fields, and their sizes.
pub fn structures(header: &str) -> BTreeMap<String, (Vec<Field>, usize)> {
    let code = code(header);
    let mut found: BTreeMap<String, (Vec<Field>, usize)> = BTreeMap::new();
    for part in code.split("struct ").skip(1) {
        let Some((name, rest)) = part.split_once('{') else { continue };
        if name.contains([';', '(', ')']) {
            continue;
        }
        // Fields of structures stand in parts of their own.
        let from = code.find(&format!("struct {name}{{")).unwrap() + "struct ".len() + name.len();
        let body = &code[from + 1..from + code[from..].find('}').unwrap()];
        debug_assert!(!rest.is_empty());
        let mut fields = Vec::new();
        let (mut at, mut widest) = (0_usize, 1);
        for field in body.split(';').map(joined).filter(|field| !field.is_empty()) {
            let (c_type, declarator) = field.rsplit_once(' ').unwrap();
            let (declarator, count) = match declarator.split_once('[') {
                Some((declarator, count)) => {
                    (declarator, count.trim_end_matches(']').parse().unwrap())
                }
                None => (declarator, 1),
            };
            let (align, size) = match declarator.strip_prefix('*') {
                Some(_) => (8, 8),
                None => layout(c_type, &found),
            };
            (at, widest) = (at.next_multiple_of(align), widest.max(align));
            let name = declarator.trim_start_matches('*').to_owned();
            let size = size * count;
            fields.push(Field { name, c_type: c_type.to_owned(), offset: at, size });
            at += size;
        }
        found.insert(name.trim().to_owned(), (fields, at.next_multiple_of(widest)));
    }
    found
}

/// Returns alignment and size of a type.
fn layout(c_type: &str, known: &BTreeMap<String, (Vec<Field>, usize)>) -> (usize, usize) {
    match c_type {
        "char" => (1, 1),
        "uint32_t" | "int32_t" => (4, 4),
        "uint64_t" | "int64_t" => (8, 8),
        _ => {
            let name = c_type.strip_prefix("struct ").unwrap_or_else(|| panic!("{c_type}"));
            // Every structure that another one contains has fields of 64 bits.
            (8, known[name].1)
        }
    }
}
