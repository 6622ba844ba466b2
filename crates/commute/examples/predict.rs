//! Prints what the workloads of `vfscale bench` would make on 1 to 512 cores, in thousands of operations in a
//! second, as they are and with the kernel's structures of before the patches of the seeds.

fn main() -> std::io::Result<()> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    print()?;
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    eprintln!("Calls can be recorded on Linux on x86-64 only.");
    Ok(())
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: vfscale_commute::arena::Arenas = vfscale_commute::arena::Arenas;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn print() -> std::io::Result<()> {
    use vfscale::Scaling;
    use vfscale_commute::predict::{CORES, Machine, curve, recorded, workload};

    let machine = Machine::eight_sockets();
    let heads: Vec<_> = CORES.iter().map(|cores| format!("{cores:>8}")).collect();
    println!("{:<24}{:<8}{:>6}{}", "workload", "", "lines", heads.concat());
    for workload in workload::all() {
        for (name, scaling) in [("now", Scaling::default()), ("before", Scaling::kernel_2_6())] {
            let program = recorded::program(&workload, scaling)?;
            let rate = |(_, operations): (usize, f64)| {
                format!("{:>8.0}", operations * f64::from(workload.operations) / 1e3)
            };
            let rates: Vec<_> = curve(&machine, &program).into_iter().map(rate).collect();
            let (title, lines) = (workload.name, program.shared_lines());
            println!("{title:<24}{name:<8}{lines:>6}{}", rates.concat());
        }
    }
    Ok(())
}
