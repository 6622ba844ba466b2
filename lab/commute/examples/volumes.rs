//! Prints the cache lines that two of 32 CPUs share while they work in directories of their own on
//! a volume.
//!
//! The rows are: with all patches of Kara 2014 (orphan lists) and of Chinner 2020
//! (per-CPU delayed logging), without each of them, and without several. A line counts if
//! one operation of each CPU touches it and one of them writes it. The number in brackets counts
//! the accesses of an operation to such lines. The second table has the predicted throughput on 32
//! cores, in thousands of operations per second.

#[macro_use]
mod common;

recording_main!(table::print);

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod table {
    use std::io;

    use vfscale::{PATCHES, Scaling};
    use vfscale_commute::predict::workload;
    use vfscale_commute::predict::{LEFT_OUT, Machine, Program, recorded, throughput};
    use vfscale_commute::runner::{Options, Target};

    const CPUS: usize = 32;
    const WORKLOADS: [&str; 4] =
        ["touch", "create-unlink-own-dir", "rename-own-dir", "orphan-truncate"];

    pub fn print() -> io::Result<()> {
        let workloads: Vec<_> = WORKLOADS.into_iter().filter_map(workload::find).collect();
        let machine = Machine::eight_sockets();
        let (mut lines, mut rates) = (Vec::new(), Vec::new());
        for (name, scaling) in settings()? {
            let options = Options { scaling, target: Target::Volume, ..Options::default() };
            let programs: Vec<Program> = workloads
                .iter()
                .map(|workload| recorded::program_alone(workload, options))
                .collect::<io::Result<_>>()?;
            let shared = programs.iter().map(|program| {
                format!(" {} ({}) |", program.shared_lines(), program.shared_accesses())
            });
            lines.push(format!("| {name} |{}", shared.collect::<String>()));
            let rate = programs.iter().zip(&workloads).map(|(program, workload)| {
                let rate = throughput(&machine, program, CPUS) * f64::from(workload.operations);
                format!(" {:.0} |", rate / 1e3)
            });
            rates.push(format!("| {name} |{}", rate.collect::<String>()));
        }
        let heads = workloads.iter().map(|workload| format!(" `{}` |", workload.name));
        let heads = format!("| without |{}", heads.collect::<String>());
        let rule = format!("| --- |{}", " ---: |".repeat(workloads.len()));
        println!("{LEFT_OUT}\n");
        for table in [lines, rates] {
            println!("{heads}\n{rule}\n{}\n", table.join("\n"));
        }
        Ok(())
    }

    /// Returns all patches, all without each one about volumes, and all without several. If the
    /// other patches of the delayed logging are enabled, `read-mostly` separates hardly any line.
    fn settings() -> io::Result<Vec<(String, Scaling)>> {
        let all = Scaling::with_slots(CPUS);
        let names: Vec<_> = PATCHES
            .iter()
            .filter(|patch| patch.is_of_volumes())
            .map(|patch| patch.name())
            .collect();
        let of_logging = names.iter().copied().filter(|name| *name != "orphan");
        let but_the_first = of_logging.clone().filter(|name| *name != "read-mostly");
        let several = [
            ("delayed logging but `read-mostly`", but_the_first.collect()),
            ("delayed logging", of_logging.collect()),
            ("orphan file and delayed logging", names.clone()),
        ];
        let mut settings = vec![("nothing".to_owned(), all)];
        for name in &names {
            settings.push((format!("`{name}`"), without(all, &[*name])?));
        }
        for (title, names) in several {
            settings.push((title.to_owned(), without(all, &names)?));
        }
        Ok(settings)
    }

    fn without(scaling: Scaling, names: &[&str]) -> io::Result<Scaling> {
        let one = |scaling: Scaling, name: &&str| scaling.and_before(name);
        names.iter().try_fold(scaling, one).map_err(io::Error::other)
    }
}
