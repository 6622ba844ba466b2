//! Writing an archive.

use super::header::{Header, ID_MAX, NAME_MAX, SIZE_MAX, letter};
use super::{BLOCK, Entry, Kind, pax};

/// The bytes at the end of an archive.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// An archive that is handed out in parts.
pub(crate) struct Writer<'w> {
    each: &'w mut dyn FnMut(&[u8]) -> bool,
    /// Whether `each` wants no more.
    is_over: bool,
    /// Bytes of contents that were written.
    written: u64,
}

impl<'w> Writer<'w> {
    /// Returns a writer that calls `each` with the parts until that returns false.
    pub(crate) fn new(each: &'w mut dyn FnMut(&[u8]) -> bool) -> Self {
        Self { each, is_over: false, written: 0 }
    }

    /// Returns whether nothing more is wanted.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    fn put(&mut self, bytes: &[u8]) {
        self.is_over = self.is_over || !(self.each)(bytes);
    }

    /// Begins an entry. The contents of a file follow: the bytes of its ranges, by
    /// [`data`](Self::data), and then [`end`](Self::end).
    pub(crate) fn entry(&mut self, entry: &Entry) {
        let map = if entry.is_whole() { Vec::new() } else { map(entry) };
        let records = records(entry, &map);
        if !records.is_empty() {
            let name = [b"PaxHeaders/", &entry.path[..]].concat();
            self.header(&Header {
                name: name[..name.len().min(NAME_MAX)].to_vec(),
                mode: 0o644,
                size: records.len() as u64,
                kind: b'x',
                ..Header::default()
            });
            self.put(&records);
            self.fill(records.len() as u64);
        }
        let mut name = match &entry.path[..] {
            [] => b"./".to_vec(),
            path if entry.kind == Kind::Directory => [path, b"/"].concat(),
            path => path.to_vec(),
        };
        name.truncate(NAME_MAX);
        self.header(&Header {
            name,
            mode: entry.mode,
            uid: entry.uid.into(),
            gid: entry.gid.into(),
            size: stored(entry, &map),
            mtime: entry.mtime.div_euclid(1_000_000_000),
            kind: letter(entry.kind),
            target: entry.target.clone(),
            device: (entry.device.0.into(), entry.device.1.into()),
        });
        self.written = map.len() as u64;
        if !map.is_empty() {
            self.put(&map);
        }
    }

    /// Writes a part of the contents.
    pub(crate) fn data(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        self.put(bytes);
    }

    /// Ends the contents of an entry.
    pub(crate) fn end(&mut self) {
        self.fill(self.written);
    }

    fn header(&mut self, header: &Header) {
        let block = header.encode();
        self.put(&block);
    }

    /// Fills the last block behind so many bytes.
    fn fill(&mut self, bytes: u64) {
        let rest = (bytes % BLOCK as u64) as usize;
        if rest > 0 {
            self.put(&END[rest..BLOCK]);
        }
    }
}

/// Returns the bytes that follow the header.
fn stored(entry: &Entry, map: &[u8]) -> u64 {
    let data: u64 = entry.data.iter().map(|range| range.end - range.start).sum();
    map.len() as u64 + data
}

/// Returns the places of the data of a file with holes, in whole blocks.
fn map(entry: &Entry) -> Vec<u8> {
    let mut text = format!("{}\n", entry.data.len());
    for range in &entry.data {
        text += &format!("{}\n{}\n", range.start, range.end - range.start);
    }
    let mut map = text.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// Returns the records for what has no room in the header.
fn records(entry: &Entry, map: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut push = |key: &str, value: &[u8]| pax::push(&mut out, key.as_bytes(), value);
    let is_sparse = !map.is_empty();
    let path: &[u8] = if entry.path.is_empty() { b"." } else { &entry.path };
    let path = match entry.kind {
        Kind::Directory => [path, b"/"].concat(),
        _ => path.to_vec(),
    };
    let is_plain = |text: &[u8]| text.len() <= NAME_MAX && text.is_ascii();
    if is_sparse {
        push(pax::SPARSE_MAJOR, b"1");
        push(pax::SPARSE_MINOR, b"0");
        push(pax::SPARSE_NAME, &path);
        push(pax::SPARSE_SIZE, entry.size.to_string().as_bytes());
    } else if !is_plain(&path) {
        push(pax::PATH, &path);
    }
    if !is_plain(&entry.target) {
        push(pax::TARGET, &entry.target);
    }
    if stored(entry, map) > SIZE_MAX {
        push(pax::SIZE, stored(entry, map).to_string().as_bytes());
    }
    for (key, id) in pax::IDS.into_iter().zip([entry.uid, entry.gid]) {
        if id > ID_MAX {
            push(key, id.to_string().as_bytes());
        }
    }
    let has_place = entry.mtime >= 0 && entry.mtime % 1_000_000_000 == 0;
    if !has_place {
        push(pax::MTIME, pax::time(entry.mtime).as_bytes());
    }
    if !entry.flags.is_empty() {
        push(pax::FLAGS, &entry.flags);
    }
    for (name, value) in &entry.xattrs {
        pax::push(&mut out, &[pax::XATTR.as_bytes(), name].concat(), value);
    }
    out
}
