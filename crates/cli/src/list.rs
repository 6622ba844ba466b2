//! `vfscale mounts`: the mounts of the user, and those to be removed whose server has ended.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use vfscale::{Errno, Escaped};
use vfscale_fuse::mount_table::{MountLine, lines};

use crate::elsewhere::temporary;
use crate::elsewhere::{self, Serving};
use crate::error::Failure;
use crate::mounts::{self, Trusted};
use crate::output::{path_members, written};

#[derive(Debug, Args)]
pub(crate) struct MountsArgs {
    /// Print JSON instead of words
    #[arg(long)]
    json: bool,

    /// Unmount those whose server has ended, and remove what runs have left that were killed
    #[arg(long)]
    prune: bool,
}

/// A mount of the user.
struct Listed {
    dir: PathBuf,
    image: PathBuf,
    state: State,
}

enum State {
    Served(Serving),
    /// The server has ended.
    Dead,
    /// The server does not reply.
    Hung,
    /// The server can't be asked; why.
    Unknown(String),
    /// The mount was dead, and is unmounted.
    Removed,
}

/// Lists the mounts, and removes the dead ones if that is asked for.
pub(crate) fn mounts(args: &MountsArgs) -> Result<ExitCode, Failure> {
    let table = mounts::table()?;
    let own = Trusted::only_self();
    let is_own = |mount: &MountLine<'_>| mount.is_ours() && own.has_made(mount);
    let mut listed: Vec<Listed> = lines(&table).filter(is_own).map(|it| look(&it)).collect();
    if args.prune {
        for mount in listed.iter_mut().filter(|mount| matches!(mount.state, State::Dead)) {
            let removed = temporary::unmount_dead(&mount.dir);
            removed.map_err(|e| Failure::Unmount(mount.dir.clone(), e))?;
            mount.state = State::Removed;
        }
        temporary::remove_dead(&std::env::temp_dir());
    }
    let mut out = io::stdout().lock();
    written(if args.json {
        let value: Value = listed.iter().map(as_json).collect();
        let text = serde_json::to_string_pretty(&value).map_err(io::Error::from);
        text.and_then(|text| writeln!(out, "{text}"))
    } else {
        listed.iter().try_for_each(|mount| writeln!(out, "{}", words(mount)))
    })
}

fn look(mount: &MountLine<'_>) -> Listed {
    let (dir, image) = (mount.dir(), mount.source());
    let state = match elsewhere::serving(&dir) {
        Ok(serving) => State::Served(serving),
        Err(error) if error.errno() == Errno::NOTCONN => State::Dead,
        Err(error) if error.errno() == Errno::TIMEDOUT => State::Hung,
        Err(error) => State::Unknown(error.to_string()),
    };
    Listed { dir, image, state }
}

/// Returns a word for the state, and what is to be said of it.
fn state(state: &State) -> (&'static str, String) {
    match state {
        State::Served(Serving { process, branch: Some(branch) }) => {
            ("served", format!("branch {branch:?}, served by process {process}"))
        }
        State::Served(Serving { process, .. }) => {
            ("served", format!("served by process {process}"))
        }
        State::Dead => ("dead", "dead, its server has ended: `vfscale mounts --prune`".into()),
        State::Hung => ("hung", "its server does not reply: `vfscale umount --force`".into()),
        State::Unknown(why) => ("unknown", Escaped::message(why).to_string()),
        State::Removed => ("removed", "removed, its server had ended".into()),
    }
}

fn words(mount: &Listed) -> String {
    let (dir, image) = (Escaped::new(&mount.dir), Escaped::new(&mount.image));
    format!("{dir}: {image}, {}", state(&mount.state).1)
}

fn as_json(mount: &Listed) -> Value {
    let (branch, process) = match &mount.state {
        State::Served(Serving { process, branch }) => (branch.as_deref(), Some(*process)),
        _ => (None, None),
    };
    let rest = [
        ("branch".to_owned(), json!(branch)),
        ("pid".to_owned(), json!(process)),
        ("state".to_owned(), json!(state(&mount.state).0)),
    ];
    let all = path_members("directory", &mount.dir)
        .into_iter()
        .chain(path_members("image", &mount.image));
    Value::Object(all.chain(rest).collect())
}
