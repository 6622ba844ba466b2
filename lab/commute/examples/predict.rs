//! Prints the predicted throughput of the workloads of `vfscale bench` on 1 to 512 cores, in
//! thousands of operations per second.
//!
//! It prints a row for the default structures, one without each patch that changes the lines the
//! workload shares, and one without all patches. The target is memory. With the argument `volume`,
//! it is a volume, and the second row is without all patches that are about volumes (the `volumes`
//! example has each of them).

#[macro_use]
mod common;

recording_main!(curves::print);

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod curves {
    use std::io;

    use vfscale::{PATCHES, Patch, Scaling};
    use vfscale_commute::predict::workload::{self, Workload};
    use vfscale_commute::predict::{CORES, LEFT_OUT, Machine, Program, curve, recorded};
    use vfscale_commute::runner::{Options, Target};

    /// Number of CPUs that the structures of a volume are sharded over.
    const CPUS: usize = 32;

    pub fn print() -> io::Result<()> {
        let on_volumes = match std::env::args().nth(1).as_deref() {
            None => false,
            Some("volume") => true,
            Some(other) => {
                return Err(io::Error::other(format!("{other}: neither nothing nor `volume`")));
            }
        };
        let cores: String = CORES.iter().map(|cores| format!(" {cores} |")).collect();
        println!("{LEFT_OUT}\n");
        println!("| workload | before | shared lines |{cores}");
        println!("| --- | --- | ---: |{}", " ---: |".repeat(CORES.len()));
        let now = if on_volumes { Scaling::with_slots(CPUS) } else { Scaling::default() };
        let of_target: Vec<_> =
            PATCHES.iter().filter(|patch| patch.is_of_volumes() == on_volumes).collect();
        for workload in workload::all() {
            print_workload(&workload, now, &of_target, on_volumes)?;
        }
        Ok(())
    }

    /// Prints the row of the default structures, in memory one for each patch that changes the
    /// shared lines, and one without all patches.
    fn print_workload(
        workload: &Workload,
        now: Scaling,
        patches: &[&Patch],
        on_volumes: bool,
    ) -> io::Result<()> {
        let program = |scaling| {
            let target = if on_volumes { Target::Volume } else { Target::Memory };
            recorded::program_alone(workload, Options { scaling, target, ..Options::default() })
        };
        let before = |scaling: Scaling, patch: &&Patch| scaling.and_before(patch.name());
        let with_all = program(now)?;
        print_line(workload, "as it is", &with_all);
        for patch in patches.iter().filter(|_| !on_volumes) {
            let without = program(before(now, patch).map_err(io::Error::other)?)?;
            if without.shared_lines() != with_all.shared_lines() {
                print_line(workload, &format!("`{}`", patch.name()), &without);
            }
        }
        let none = patches.iter().try_fold(now, before).map_err(io::Error::other)?;
        print_line(workload, "all", &program(none)?);
        Ok(())
    }

    fn print_line(workload: &Workload, before: &str, program: &Program) {
        let rate = |(_, operations): (usize, f64)| {
            format!(" {:.0} |", operations * f64::from(workload.operations) / 1e3)
        };
        let rates: String =
            curve(&Machine::eight_sockets(), program).into_iter().map(rate).collect();
        let (name, lines) = (workload.name, program.shared_lines());
        println!("| `{name}` | {before} | {lines} |{rates}");
    }
}
