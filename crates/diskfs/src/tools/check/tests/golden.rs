//! A volume of format version 1, unchanged since that version was introduced: every later version
//! can read it.
//!
//! The volume has a structure of every kind, and a change in its log that is not written back. The
//! file has a line for each block that is not all zero: its address, then each run of other bytes,
//! as its offset in the block and hexadecimal digits. `VFSCALE_WRITE_GOLDEN` names a file to write
//! such an image to; it is only for a new version.

use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};

use super::log::change_header;
use super::sample::{EXTENTS, FEW_ATTRIBUTES, LIST, LONG_LINK, MANY, MANY_ATTRIBUTES, Sample};
use crate::format::byte_of_block;
use crate::tools::check::{self, LogState, Options};
use crate::tools::dump::{Dump, Value, What};
use crate::{Settings, Volume};

const GOLDEN: &str = include_str!("golden/version_1.txt");
/// Maximum number of zeros that do not end a run.
const ZEROS: usize = 4;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn read(text: &str) -> Arc<dyn Device> {
    let mut lines = text.lines();
    let size = lines.next().unwrap().parse().unwrap();
    let device = MemoryDevice::new(size).unwrap();
    for line in lines {
        let mut parts = line.split(' ');
        let address = parts.next().unwrap().parse().unwrap();
        let mut block = [0; 4096];
        for part in parts {
            let (at, hex) = part.split_once(':').unwrap();
            let (at, bytes) = (at.parse::<usize>().unwrap(), bytes_of(hex));
            block[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        device.write_at(byte_of_block(address), &block).unwrap();
    }
    Arc::new(device)
}

fn written(device: &dyn Device) -> String {
    let mut text = format!("{}\n", device.size());
    let mut block = [0; 4096];
    for address in 0..device.size() / 4096 {
        device.read_at(byte_of_block(address), &mut block).unwrap();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in (0..4096).filter(|at| block[*at] != 0) {
            match runs.last_mut() {
                Some((_, end)) if at <= *end + ZEROS => *end = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
        if !runs.is_empty() {
            let shown =
                runs.iter().map(|(from, to)| format!(" {from}:{}", Value::hex(&block[*from..*to])));
            text += &format!("{address}{}\n", shown.collect::<String>());
        }
    }
    text
}

#[test]
fn a_golden_image_is_written_if_it_is_wanted() {
    let sample = Sample::new();
    // The block on disk is wrong, and the log has the correct one.
    sample.header(1, |header| header.free += 1);
    change_header(&sample, |header| header.free -= 1);
    let text = written(&*sample.device);
    assert_eq!(written(&*read(&text)), text);
    if let Some(path) = std::env::var_os("VFSCALE_WRITE_GOLDEN") {
        std::fs::write(path, text).unwrap();
    }
}

#[test]
fn version_1_is_read() {
    let device = read(GOLDEN);
    let report = check::check(device.clone(), &Options::default(), &mut ()).unwrap();
    assert_eq!(report.log, LogState::Replayed { checkpoints: 1, items: 1 });
    assert_eq!(report.findings, []);
    assert_eq!((report.figures.inodes, report.figures.directories), (12, 3));
    let dump = Dump::open(device.clone(), None, true).unwrap();
    let shown = |what| dump.show(what).unwrap().to_string();
    assert!(shown(What::Directory(64)).contains("name tree"));
    assert!(shown(What::Directory(65)).contains("name 149: a name that does not fit"));
    assert!(shown(What::Inode(MANY)).contains("696e2074686520696e6f6465"));
    assert!(shown(What::Inode(LONG_LINK)).contains(&format!("target: {}", "x".repeat(1000))));
    assert!(shown(What::Extents(LIST)).contains("unwritten yes"));
    assert!(shown(What::Extents(EXTENTS)).contains("file block 117"));
    assert!(shown(What::Attributes(FEW_ATTRIBUTES)).contains("user.two"));
    assert!(shown(What::Attributes(MANY_ATTRIBUTES)).contains("bytes 5000"));
}

#[test]
fn version_1_is_opened() {
    let device = read(GOLDEN);
    let volume = Volume::open(device.clone(), Settings::default()).unwrap();
    assert_eq!(volume.recovered().items, 1);
    volume.close().unwrap();
    let report = check::check(device, &Options::default(), &mut ()).unwrap();
    assert_eq!((report.log, report.findings), (LogState::Clean, vec![]));
}
