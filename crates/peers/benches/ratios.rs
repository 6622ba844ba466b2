//! The table of ratios, with targets: vfscale against the kernel's tmpfs, two threads against one,
//! vfscale against other libraries.

use std::error::Error;

use vfscale_peers::embedded::Embedded;
use vfscale_peers::libraries;
use vfscale_peers::measure::{Harness, Plan};
use vfscale_peers::report::{Report, Target};
use vfscale_peers::subject::{Kind, Subject, THREADS};
use vfscale_peers::tmpfs::Tmpfs;

/// Returns the target over tmpfs, on one thread.
fn tmpfs_target(kind: Kind) -> Target {
    match kind {
        Kind::OpenOwn | Kind::DescriptorOwn | Kind::CreateOne => Target::AtLeast(15.0),
        Kind::Stat => Target::AtLeast(10.0),
        Kind::Read => Target::AtLeast(3.0),
        _ => Target::None,
    }
}

/// Returns the target of two threads over one.
fn scaling_target(kind: Kind) -> Target {
    match kind {
        Kind::OpenOwn
        | Kind::OpenShared
        | Kind::DescriptorOwn
        | Kind::DescriptorShared
        | Kind::CreateOne
        | Kind::CreateOwn
        | Kind::Stat
        | Kind::RenameShared => Target::AtLeast(1.9),
        _ => Target::None,
    }
}

fn against_tmpfs(report: &mut Report, harness: &Harness, ours: &Embedded, tmpfs: &Tmpfs) {
    report.table("vfscale against tmpfs, one thread: times faster", "vfscale", "tmpfs");
    for kind in Kind::ALL {
        report.row(&format!("tmpfs: {}", kind.name()), tmpfs_target(kind), || {
            Some(harness.faster(ours.work(kind, 0)?, tmpfs.work(kind, 0)?))
        });
    }
}

fn scaling(report: &mut Report, harness: &Harness, subject: &dyn Subject, has_targets: bool) {
    let title = format!("{}: throughput of two threads over one", subject.name());
    report.table(&title, "one", "two");
    for kind in Kind::ALL {
        if !has_targets && kind != kind.without_descriptors() {
            continue;
        }
        let target = if has_targets { scaling_target(kind) } else { Target::None };
        report.row(&format!("{} scaling: {}", subject.name(), kind.name()), target, || {
            let works: Option<Vec<_>> =
                (0..THREADS).map(|thread| subject.work(kind, thread)).collect();
            Some(harness.scaling(works?))
        });
    }
}

fn against_libraries(
    report: &mut Report,
    harness: &Harness,
    ours: &Embedded,
    peers: &[Box<dyn Subject>],
) {
    let kinds = || Kind::ALL.into_iter().filter(|kind| *kind == kind.without_descriptors());
    report.table("vfscale against libraries, one thread: times faster", "vfscale", "library");
    for kind in kinds() {
        for peer in peers {
            // Libraries that check no permissions or record no times do less work.
            let target = if peer.is_posix_like() { Target::AtLeast(1.0) } else { Target::None };
            report.row(&format!("{} one: {}", peer.name(), kind.name()), target, || {
                Some(harness.faster(ours.work(kind, 0)?, peer.work(kind, 0)?))
            });
        }
    }
    report.table("vfscale against libraries, two threads: times faster", "vfscale", "library");
    for kind in kinds() {
        for peer in peers {
            let target = if peer.is_posix_like() { Target::AtLeast(5.0) } else { Target::None };
            report.row(&format!("{} two: {}", peer.name(), kind.name()), target, || {
                let works = |subject: &dyn Subject| -> Option<Vec<_>> {
                    (0..THREADS).map(|thread| subject.work(kind, thread)).collect()
                };
                Some(harness.faster_together(works(ours)?, works(peer.as_ref())?))
            });
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let filter = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut report = Report::new(filter);
    let harness = Harness::new(THREADS, Plan::default())?;
    let ours = Embedded::new()?;
    let tmpfs = Tmpfs::new()?;
    let peers = libraries::all()?;
    against_tmpfs(&mut report, &harness, &ours, &tmpfs);
    scaling(&mut report, &harness, &ours, true);
    scaling(&mut report, &harness, &tmpfs, false);
    for peer in &peers {
        scaling(&mut report, &harness, peer.as_ref(), false);
    }
    against_libraries(&mut report, &harness, &ours, &peers);
    report.finish();
    Ok(())
}
