//! Prints the predicted throughput of the workloads of `vfscale bench` on 1 to 512 cores, in
//! thousands of operations per second.
//!
//! It prints a row for the default structures, one without each patch that changes the lines the
//! workload shares, and one without all patches. The target is memory. With the argument `volume`,
//! it is a volume, and the second row is without all patches that are about volumes (the `volumes`
//! example has each of them). With `fxmark` the workloads are FxMark's microbenchmarks; with
//! `lines` it prints the owners of the lines that two workers share in place of the table.

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
        let (mut on_volumes, mut names_lines, mut workloads) = (false, false, workload::all());
        for word in std::env::args().skip(1) {
            match word.as_str() {
                "volume" => on_volumes = true,
                "fxmark" => workloads = workload::fxmark(),
                "lines" => names_lines = true,
                _ => {
                    let text = format!("{word}: none of volume, fxmark and lines");
                    return Err(io::Error::other(text));
                }
            }
        }
        if names_lines {
            return workloads.iter().try_for_each(|of| print_lines(of, on_volumes));
        }
        let cores: String = CORES.iter().map(|cores| format!(" {cores} |")).collect();
        println!("{LEFT_OUT}\n");
        println!("| workload | before | shared lines |{cores}");
        println!("| --- | --- | ---: |{}", " ---: |".repeat(CORES.len()));
        let now = options(on_volumes).scaling;
        let of_target: Vec<_> =
            PATCHES.iter().filter(|patch| patch.is_of_volumes() == on_volumes).collect();
        for workload in workloads {
            print_workload(&workload, now, &of_target, on_volumes)?;
        }
        Ok(())
    }

    /// Returns the default structures of a target.
    fn options(on_volumes: bool) -> Options {
        if on_volumes {
            let scaling = Scaling::with_slots(CPUS);
            return Options { scaling, target: Target::Volume, ..Options::default() };
        }
        Options::default()
    }

    /// Prints the owners of the lines that two workers share.
    fn print_lines(workload: &Workload, on_volumes: bool) -> io::Result<()> {
        let lines = recorded::shared_lines(workload, options(on_volumes))?;
        println!("{}: {} shared lines", workload.name, lines.len());
        for line in lines {
            println!("    {}: {}; {}", line.owner, line.first, line.second);
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
        let program =
            |scaling| recorded::program_alone(workload, Options { scaling, ..options(on_volumes) });
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
