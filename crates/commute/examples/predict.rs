//! Prints what the workloads of `vfscale bench` would make on 1 to 512 cores, in thousands of operations in a
//! second: as they are, and with the kernel's structures of before each patch of the seeds by which the
//! workload shares other lines, and of before all of them.

#[macro_use]
mod common;

recording_main!(print);

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn print() -> std::io::Result<()> {
    use vfscale::Scaling;
    use vfscale_commute::predict::{CORES, Machine, Program, curve, recorded, workload};
    use vfscale_commute::runner::Options;

    let machine = Machine::eight_sockets();
    let program = |workload: &workload::Workload, scaling| {
        recorded::program(workload, Options { scaling, ..Options::default() })
    };
    let heads: Vec<_> = CORES.iter().map(|cores| format!("{cores:>8}")).collect();
    println!("{:<24}{:<14}{:>6}{}", "workload", "before", "lines", heads.concat());
    let patches = vfscale::PATCHES.iter().filter(|patch| !patch.is_of_volumes());
    let one = |patch: &vfscale::Patch| Ok((patch.name(), Scaling::before(patch.name())?));
    let ones: Vec<_> = patches
        .map(one)
        .collect::<Result<_, vfscale::ScalingError>>()
        .map_err(std::io::Error::other)?;
    for workload in workload::all() {
        let now = program(&workload, Scaling::default())?;
        let print = |name: &str, program: &Program| {
            let rate = |(_, operations): (usize, f64)| {
                format!("{:>8.0}", operations * f64::from(workload.operations) / 1e3)
            };
            let rates: Vec<_> = curve(&machine, program).into_iter().map(rate).collect();
            let (title, lines) = (workload.name, program.shared_lines());
            println!("{title:<24}{name:<14}{lines:>6}{}", rates.concat());
        };
        print("-", &now);
        for (name, scaling) in &ones {
            let program = program(&workload, *scaling)?;
            if program.shared_lines() != now.shared_lines() {
                print(name, &program);
            }
        }
        print("all", &program(&workload, Scaling::kernel_2_6())?);
    }
    Ok(())
}
