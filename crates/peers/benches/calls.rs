//! Times of each call on vfscale, tmpfs and the other libraries by criterion, on one thread. For
//! ratios of alternating sides, with targets, see `ratios`.

use std::error::Error;
use std::time::{Duration, Instant};

use criterion::Criterion;
use vfscale_peers::embedded::Embedded;
use vfscale_peers::libraries;
use vfscale_peers::subject::{Kind, Subject};
use vfscale_peers::tmpfs::Tmpfs;

fn bench(criterion: &mut Criterion, kind: Kind, subjects: &[Box<dyn Subject>]) {
    let mut group = criterion.benchmark_group(kind.name());
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group.sample_size(20);
    for subject in subjects {
        let Some(mut work) = subject.work(kind, 0) else { continue };
        group.bench_function(subject.name(), |bencher| {
            bencher.iter_custom(|mut times| {
                let start = Instant::now();
                while times > 0 {
                    let part = u32::try_from(times).unwrap_or(u32::MAX);
                    work.repeat(part);
                    times -= u64::from(part);
                }
                start.elapsed()
            });
        });
    }
    group.finish();
}

fn main() -> Result<(), Box<dyn Error>> {
    // Before the working directory changes: criterion derives the path of its reports from it.
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    let mut subjects: Vec<Box<dyn Subject>> =
        vec![Box::new(Embedded::new()?), Box::new(Tmpfs::new()?)];
    subjects.extend(libraries::all()?);
    for kind in Kind::ALL {
        bench(&mut criterion, kind, &subjects);
    }
    criterion.final_summary();
    Ok(())
}
