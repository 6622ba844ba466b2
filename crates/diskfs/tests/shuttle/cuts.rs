//! Random schedules of cuts of a volume that several threads change:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale-diskfs --test shuttle cuts::`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfscale_block::Device;
use vfscale_diskfs::{Settings, check};
use vfscale_sync::model;
use vfscale_vfs::driver::FileSystem;
use vfscale_vfs::{OpenOptions, Task, Vfs};

use crate::volumes::{PAGE, copy_of, device, mounted, one_list, schedules};

const STEPS: usize = 3;

/// Makes step `step` of thread `number`: first it writes a page of its file, in place or behind the
/// end, then it makes a directory.
fn make_step(task: &Task, number: usize, step: usize) {
    let file = format!("/file{number}");
    let at = (step % 2 * PAGE) as u64;
    let file = task.open_with(file, &OpenOptions::new().write(true)).unwrap();
    file.pwrite(&[step as u8 + 1; PAGE], at).unwrap();
    task.create_dir(format!("/dir{number} {step}")).unwrap();
}

/// Returns how many steps of thread `number` there are, and asserts that they are its first ones:
/// if a directory is there, the page that was written before it is.
fn steps_of(task: &Task, number: usize) -> usize {
    let has = |step: &usize| task.exists(format!("/dir{number} {step}")).unwrap();
    let steps = (0..STEPS).take_while(has).count();
    assert!((steps..STEPS).all(|step| !has(&step)), "thread {number} has a gap");
    let bytes = task.read(format!("/file{number}")).unwrap();
    for step in steps.saturating_sub(2)..steps {
        let page = &bytes[step % 2 * PAGE..][..PAGE];
        let is_it = |byte: u8| usize::from(byte) == step + 1 || usize::from(byte) == step + 3;
        assert!(page.iter().all(|byte| is_it(*byte)), "thread {number}, step {step}: {}", page[0]);
    }
    steps
}

/// Asserts that a volume has at least these steps, and at most those, of each thread.
fn assert_cut(device: Arc<dyn Device>, least: [usize; 2], most: [usize; 2]) {
    let report = check::check(device.clone(), &check::Options::default(), &mut ()).unwrap();
    assert_eq!(report.count, 0, "{:?}", report.findings.first());
    let (fs, vfs) = mounted(device, one_list());
    for number in 0..2 {
        let steps = steps_of(&vfs.task(), number);
        assert!((least[number]..=most[number]).contains(&steps), "{steps}: {least:?}, {most:?}");
    }
    drop(vfs);
    fs.close().unwrap();
}

fn prepared(vfs: &Vfs) {
    (0..2).for_each(|number| vfs.task().write(format!("/file{number}"), [9; PAGE]).unwrap());
}

/// A cut has a beginning of the calls of each thread, and all that had returned, while another
/// thread makes everything durable and the journal writes home. Fails if a cut does not write the
/// data that is dirty when its gate is shut, or shuts that gate after that of the journal.
///
/// Race: Cut / writers / sync of a volume.
/// Seam: data and pushes of others / the gates of a cut (`crates/diskfs/src/vfs_impl/cut.rs`);
/// parties: a cut, two writers, a sync that also has the journal write home.
#[test]
fn cut_against_writers_against_sync() {
    schedules(|| {
        let device = device();
        // Writers have to write back as well.
        let few = Settings { data_cache_bytes: 16 * PAGE as u64, ..one_list() };
        let (fs, vfs) = mounted(device.clone(), few);
        prepared(&vfs);
        let done = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let now = |done: &[AtomicUsize; 2]| [0, 1].map(|at| done[at].load(Ordering::SeqCst));
        let writer = |number: usize| {
            model::spawn((vfs.task(), done.clone()), move |(task, done)| {
                for step in 0..STEPS {
                    make_step(&task, number, step);
                    done[number].store(step + 1, Ordering::SeqCst);
                }
            })
        };
        let writers = [writer(0), writer(1)];
        let syncing = model::spawn(fs.clone(), move |fs| {
            fs.sync_fs().unwrap();
            fs.volume().journal().unwrap().quiesce().unwrap();
        });
        for _ in 0..2 {
            let least = now(&done);
            let copy = fs
                .cut(|cut| {
                    let copy = copy_of(&device);
                    cut.thaw();
                    copy
                })
                .unwrap();
            // A call that had begun may be there.
            let most = now(&done).map(|steps| (steps + 1).min(STEPS));
            assert_cut(copy, least, most);
        }
        writers.into_iter().chain([syncing]).for_each(|thread| thread.join().unwrap());
        let copy = fs.cut(|_| copy_of(&device)).unwrap();
        assert_cut(copy, [STEPS; 2], [STEPS; 2]);
        drop(vfs);
        fs.close().unwrap();
    });
}
