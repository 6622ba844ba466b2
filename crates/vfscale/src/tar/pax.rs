//! Extended headers: records of a key and a value.

/// The key of the path.
pub(super) const PATH: &str = "path";
/// The key of the target of a link.
pub(super) const TARGET: &str = "linkpath";
/// The key of the bytes that follow.
pub(super) const SIZE: &str = "size";
/// The keys of the owner and the group.
pub(super) const IDS: [&str; 2] = ["uid", "gid"];
/// The key of the last change of the contents.
pub(super) const MTIME: &str = "mtime";
/// The beginning of the keys of extended attributes.
pub(super) const XATTR: &str = "SCHILY.xattr.";
/// The key of inode flags.
pub(super) const FLAGS: &str = "SCHILY.fflags";
/// The keys of a file with holes: version, path and length.
pub(super) const SPARSE_MAJOR: &str = "GNU.sparse.major";
pub(super) const SPARSE_MINOR: &str = "GNU.sparse.minor";
pub(super) const SPARSE_NAME: &str = "GNU.sparse.name";
pub(super) const SPARSE_SIZE: &str = "GNU.sparse.realsize";
/// The beginning of all keys of files with holes.
pub(super) const SPARSE: &str = "GNU.sparse.";

/// Appends a record, which begins with its length.
pub(super) fn push(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(format!("{length} ").as_bytes());
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Splits records; `None` if they are no such.
pub(super) fn records(mut bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut found = Vec::new();
    // Some writers fill the block.
    while bytes.first().is_some_and(|byte| *byte != 0) {
        let space = bytes.iter().position(|byte| *byte == b' ')?;
        let length: usize = str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
        let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
        let sign = record.iter().position(|byte| *byte == b'=')?;
        found.push((&record[..sign], &record[sign + 1..]));
        bytes = &bytes[length..];
    }
    Some(found)
}

/// Returns a time in nanoseconds as a decimal number of seconds.
pub(super) fn time(nanos: i64) -> String {
    let (sign, all) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (seconds, rest) = (all / 1_000_000_000, all % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}");
    }
    format!("{sign}{seconds}.{rest:09}").trim_end_matches('0').to_owned()
}

/// Reads a time as [`time`] writes it, also with more digits.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let (seconds, rest) = text.split_once('.').unwrap_or((text, ""));
    if [seconds, rest].iter().any(|it| it.bytes().any(|byte| !byte.is_ascii_digit())) {
        return None;
    }
    let nanos = format!("{:0<9}", &rest[..rest.len().min(9)]);
    let all = i128::from(seconds.parse::<u64>().ok()?) * 1_000_000_000;
    let all = all + i128::from(nanos.parse::<u32>().ok()?);
    i64::try_from(if is_negative { -all } else { all }).ok()
}
