//! Common parts of programs that record calls: the allocator, and a `main` that reports unsupported
//! systems.

/// Defines a `main` that calls `$print`, which exists only where calls can be recorded.
macro_rules! recording_main {
    ($print:path) => {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        #[global_allocator]
        static ALLOCATOR: vfscale_commute::trace::arena::Arenas =
            vfscale_commute::trace::arena::Arenas;

        fn main() -> std::io::Result<()> {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            $print()?;
            #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
            eprintln!("Calls can be recorded on Linux on x86-64 only.");
            Ok(())
        }
    };
}
