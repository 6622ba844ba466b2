//! Replays calls that a program has recorded on a volume whose device records them in turn, and
//! stores images of what power cuts may have left there.
//!
//! ```text
//! replay TRACE IMAGE FOLDER --states 100        in the volume of an image
//! replay TRACE IMAGE FOLDER --branch main       in a branch
//! ```
//!
//! For each image there is a line of output: its path, the number of marks that the program had
//! made before the cut, and the id of the state. IMAGE itself is not changed.
//!
//! # The trace
//!
//! A line for each call, in order: `open FD FLAGS MODE PATH`, `write FD OFFSET LENGTH` with so many
//! bytes after it, `truncate FD SIZE`, `sync FD`, `datasync FD`, `unlink PATH`, `close FD`, and
//! `mark` for a promise that holds from there on. FLAGS and MODE are those of `open(2)`, in
//! decimal; only calls that have succeeded are in it.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::Parser;
use vfscale::posix::OFlags;
use vfscale::{File, Pool, Task, VolumeBuilder};
use vfscale_block::{Device, MemoryDevice};
use vfscale_crashtest::sweep::{Recorded, recording, sample};
use vfscale_sync::random::Random;

/// Cuts the power of a volume while recorded calls are made again, and stores what is left.
#[derive(Parser)]
struct Args {
    /// The recorded calls.
    trace: PathBuf,
    /// An image of a volume, or of branches, that no process has open.
    image: PathBuf,
    /// The folder for the images.
    folder: PathBuf,
    /// The branch in which the calls are made; without it IMAGE has none.
    #[arg(long)]
    branch: Option<String>,
    /// The most power cuts.
    #[arg(long, default_value_t = 100)]
    states: usize,
    /// Seed of their choice.
    #[arg(long, default_value_t = 7)]
    seed: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("replay: {why}");
            ExitCode::FAILURE
        }
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

fn run(args: &Args) -> Result<(), String> {
    let recorded = recording(&[load(&args.image)?]).remove(0);
    let mut trace = BufReader::new(fs::File::open(&args.trace).map_err(text)?);
    let pool: Option<Pool> = match &args.branch {
        Some(_) => Some(vfscale::pool_on(recorded.clone()).open().map_err(text)?),
        None => None,
    };
    let builder: VolumeBuilder = match (&pool, &args.branch) {
        (Some(pool), Some(branch)) => pool.branch(branch),
        _ => vfscale::volume_on(recorded.clone()),
    };
    let volume = builder.sync_interval(None).open().map_err(text)?;
    replay(&mut trace, &volume.task(), &recorded)?;
    // Changes that were not synced are lost: the volume is not closed.
    volume.abandon();
    drop(pool);
    let mut random = Random::new(args.seed);
    for (number, state) in (0..).zip(sample(&recorded, (args.states, &[]), &mut random)) {
        let path = args.folder.join(format!("{number}.vfs"));
        store(&*state.device(), &path).map_err(text)?;
        println!("{} {} {}", path.display(), state.marks(), state.id());
    }
    Ok(())
}

/// Reads an image into memory.
fn load(path: &Path) -> Result<Arc<dyn Device>, String> {
    let bytes = fs::read(path).map_err(text)?;
    let device = MemoryDevice::new(bytes.len() as u64).map_err(text)?;
    for (at, piece) in (0..).step_by(4096).zip(bytes.chunks(4096)) {
        if piece.iter().any(|byte| *byte != 0) {
            device.write_at(at, piece).map_err(text)?;
        }
    }
    Ok(Arc::new(device))
}

/// Writes a sparse image.
fn store(device: &dyn Device, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let file = fs::File::create(path)?;
    file.set_len(device.size())?;
    let mut piece = vec![0; 64 << 10];
    for at in (0..device.size()).step_by(piece.len()) {
        let length = piece.len().min((device.size() - at) as usize);
        device.read_at(at, &mut piece[..length])?;
        if piece[..length].iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece[..length], at)?;
        }
    }
    Ok(())
}

/// Makes the calls of a trace.
fn replay(trace: &mut impl BufRead, task: &Task, recorded: &Recorded) -> Result<(), String> {
    let mut files: HashMap<i32, File> = HashMap::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        if trace.read_line(&mut line).map_err(text)? == 0 {
            break;
        }
        call(line.trim_end_matches('\n'), trace, task, &mut files, recorded)
            .map_err(|why| format!("call {number}, {}: {why}", line.trim_end()))?;
    }
    Ok(())
}

fn number<T: FromStr>(field: Option<&str>) -> Result<T, String> {
    field.and_then(|field| field.parse().ok()).ok_or_else(|| "a number is missing".into())
}

fn call(
    line: &str,
    trace: &mut impl Read,
    task: &Task,
    files: &mut HashMap<i32, File>,
    recorded: &Recorded,
) -> Result<(), String> {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut fields = rest.splitn(if name == "open" { 4 } else { 3 }, ' ');
    match name {
        "mark" => {
            recorded.mark("");
            return Ok(());
        }
        "unlink" => return task.remove_file(rest).map_err(text),
        _ => {}
    }
    let fd: i32 = number(fields.next())?;
    if name == "open" {
        let flags = OFlags::from_bits_retain(number(fields.next())?);
        let mode: u32 = number(fields.next())?;
        let path = fields.next().ok_or("a path is missing")?;
        files.insert(fd, task.posix().open(path, flags, mode).map_err(text)?);
        return Ok(());
    }
    let file = files.get(&fd).ok_or("the file is not open")?;
    match name {
        "write" => {
            let offset = number(fields.next())?;
            let mut bytes = vec![0; number(fields.next())?];
            trace.read_exact(&mut bytes).map_err(text)?;
            let written = file.pwrite(&bytes, offset).map_err(text)?;
            return if written == bytes.len() { Ok(()) } else { Err("a short write".into()) };
        }
        "truncate" => file.truncate(number(fields.next())?).map_err(text)?,
        "sync" => file.sync_all().map_err(text)?,
        "datasync" => file.sync_data().map_err(text)?,
        "close" => drop(files.remove(&fd)),
        _ => return Err("an unknown call".into()),
    }
    Ok(())
}
