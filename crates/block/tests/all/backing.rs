//! One volume is open once, by whichever of its names: an image file, loop devices over it, and
//! their partitions.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use vfscale_block::{Error, FileDevice, FileOptions};

use crate::files::{Loop, in_the_end, skip, system};

const MIB: u64 = 1 << 20;

fn open(path: &Path) -> FileDevice {
    in_the_end(|| FileDevice::open(path))
}

/// Checks that opening a path is refused, for writing and for reading, and that the error names the
/// other way and this process.
fn refused(path: &Path, through: Option<&Path>) {
    for read_only in [false, true] {
        let error = FileOptions::new().read_only(read_only).open(path).unwrap_err();
        assert!(matches!(error, Error::Locked { .. }), "{error}");
        let told = error.to_string();
        assert!(told.contains(&format!("by process {}", std::process::id())), "{told}");
        let way = through.map(|way| format!(" through {} ", way.display()));
        assert!(way.is_none_or(|way| told.contains(&way)), "{told}");
    }
}

/// Two loop devices over one image, and both.
fn looped(folder: &Path) -> Option<(PathBuf, [Loop; 2])> {
    let image = folder.join("image");
    drop(FileDevice::create(&image, 8 * MIB).unwrap());
    let both = (Loop::over(&image, "512"), Loop::over(&image, "512"));
    let (Some(one), Some(other)) = both else {
        skip("no loop devices");
        return None;
    };
    Some((image, [one, other]))
}

#[test]
fn an_image_is_not_open_through_a_loop_device_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let Some((image, [one, other])) = looped(folder.path()) else { return };
    let device = open(&image);
    refused(&one.0, Some(&image));
    drop(device);
    let device = open(&one.0);
    refused(&image, Some(&one.0));
    refused(&other.0, Some(&one.0));
    refused(&one.0, None);
    // The name may change.
    let moved = folder.path().join("moved");
    fs::rename(&image, &moved).unwrap();
    refused(&other.0, Some(&one.0));
    device.release();
    drop(open(&moved));
    // Readers share it, whatever their way.
    let read = |path: &Path| in_the_end(|| FileOptions::new().read_only(true).open(path));
    let readers = [read(&moved), read(&one.0), read(&other.0)];
    for path in [&moved, &one.0, &other.0] {
        let error = FileDevice::open(path).unwrap_err();
        assert!(matches!(error, Error::Locked { .. }), "{error}");
    }
    drop(readers);
    drop(open(&other.0));
}

#[test]
fn a_file_that_took_the_name_of_an_image_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some((image, [one, other])) = looped(folder.path()) else { return };
    fs::remove_file(&image).unwrap();
    drop(FileDevice::create(&image, MIB).unwrap());
    let (new, device) = (open(&image), open(&one.0));
    refused(&other.0, Some(&one.0));
    drop((new, device));
    drop(open(&other.0));
}

#[test]
fn a_loop_device_over_a_loop_device_leads_to_the_image() {
    let folder = tempfile::tempdir().unwrap();
    let Some((image, [one, other])) = looped(folder.path()) else { return };
    let Some(upper) = Loop::over(&one.0, "512") else { return skip("no loop devices") };
    let device = open(&upper.0);
    for path in [&image, &other.0, &one.0] {
        refused(path, Some(&upper.0));
    }
    drop(device);
    let device = open(&one.0);
    refused(&upper.0, None);
    drop(device);
    let _device = open(&image);
    refused(&upper.0, None);
}

/// Writes a table of two partitions, each of a MiB.
fn partition(image: &Path) {
    let mut table = [0; 512];
    for (entry, start) in [(446, 2048_u32), (462, 4096)] {
        table[entry + 4] = 0x83;
        table[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        table[entry + 12..entry + 16].copy_from_slice(&2048_u32.to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xAA]);
    OpenOptions::new().write(true).open(image).unwrap().write_all_at(&table, 0).unwrap();
}

#[test]
fn partitions_of_loop_devices_are_parts_of_the_image() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    drop(FileDevice::create(&image, 8 * MIB).unwrap());
    partition(&image);
    // The kernel may know no tables of partitions.
    let attach = || {
        let device = system("losetup", &["--find", "--show", "--partscan", image.to_str()?])?;
        let _ = system("addpart", &[&device, "1", "2048", "2048"]);
        let _ = system("addpart", &[&device, "2", "4096", "2048"]);
        Some(Loop(device.into()))
    };
    let (Some(one), Some(other)) = (attach(), attach()) else { return skip("no loop devices") };
    let part = |of: &Loop, n: u32| PathBuf::from(format!("{}p{n}", of.0.display()));
    if !part(&other, 2).exists() {
        return skip("no partitions of loop devices");
    }
    let first = open(&part(&one, 1));
    for path in [&image, &one.0, &other.0, &part(&other, 1)] {
        refused(path, None);
    }
    let second = open(&part(&other, 2));
    refused(&part(&one, 2), None);
    drop(first);
    refused(&image, Some(&part(&other, 2)));
    drop(second);
    drop(open(&image));
}

#[test]
fn loop_devices_over_parts_of_an_image_share_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    drop(FileDevice::create(&image, 8 * MIB).unwrap());
    let attach = |offset: &str, size: &str| {
        let part = ["--offset", offset, "--sizelimit", size];
        let device =
            system("losetup", &[&["--find", "--show"], &part[..], &[image.to_str()?]].concat())?;
        Some(Loop(device.into()))
    };
    let loops = [("0", "2MiB"), ("2MiB", "2MiB"), ("3MiB", "0")].map(|(at, n)| attach(at, n));
    let [Some(first), Some(second), Some(rest)] = loops else { return skip("no loop devices") };
    let (_first, held) = (open(&first.0), open(&second.0));
    refused(&rest.0, None);
    refused(&image, None);
    drop(held);
    let _rest = open(&rest.0);
    refused(&second.0, None);
}
