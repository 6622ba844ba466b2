//! `vfscale-bench fill`: creates many files and removes them, once.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use vfscale::options::Size;
use vfscale_bench::fill::{Fill, FillSample};

use crate::error::Failure;
use crate::output::{INTERRUPTED, interrupted_by_signals, output, print};

#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    /// Files, of all threads together
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) files: u64,

    /// Files in a directory
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) per_directory: u64,

    /// Threads that make them, each in directories of its own
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(..=1024))]
    pub(crate) threads: u64,

    /// Fill a volume without these patches, such as cil-lists,busy-extents; `all` is all of them
    #[arg(long, value_name = "PATCH", value_delimiter = ',')]
    pub(crate) before: Vec<String>,

    /// The size of the image, which is sparse; an empty file takes about 600 bytes of it
    #[arg(long, value_name = "SIZE", default_value = "8G")]
    pub(crate) size: Size,

    /// The size of its log (default: a 64th of the image)
    #[arg(long, value_name = "SIZE")]
    pub(crate) log_size: Option<Size>,

    /// The size of the volume's cache, as `--cache-size` of `vfscale mount`
    #[arg(long, value_name = "SIZE", default_value = "320M")]
    pub(crate) cache: Size,

    /// Fail when the process takes more memory than this
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    pub(crate) memory_max: Size,

    /// Seconds between two lines of output
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) every: u64,

    /// Leave the image at the end, for example for a check
    #[arg(long)]
    pub(crate) keep: bool,

    /// Write the results as JSON to FILE, or to standard output with `-` (the table is then printed
    /// to standard error)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// The image file to make
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,
}

/// Runs `vfscale-bench fill`.
pub(crate) fn fill(args: &FillArgs) -> Result<ExitCode, Failure> {
    let plan = Fill {
        image: args.image.clone(),
        size: args.size.on_this_machine(),
        keep: args.keep,
        files: args.files,
        per_directory: args.per_directory,
        workers: args.threads,
        before: args.before.clone(),
        log_size: args.log_size.map(Size::on_this_machine),
        cache: args.cache.on_this_machine(),
        memory_max: Some(args.memory_max.on_this_machine()),
        every: Duration::from_secs(args.every),
    };
    let interrupt = interrupted_by_signals()?;
    let shows_table = args.json.as_deref().is_none_or(|file| file.as_os_str() != "-");
    let mut watch = |sample: &FillSample| {
        // A closed standard output is no reason to end the run.
        if shows_table {
            print(&format!("{sample}\n")).unwrap_or_default();
        }
    };
    match vfscale_bench::fill::fill(&plan, &interrupt, &mut watch) {
        Err(_) if interrupt.is_raised() => Ok(ExitCode::from(INTERRUPTED)),
        outcome => {
            let report = outcome?;
            output(&[(args.json.as_deref(), &|| report.to_json())], &report.table())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
