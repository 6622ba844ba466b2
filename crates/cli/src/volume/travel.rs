//! `vfscale branch send` and `vfscale branch receive`: branches that travel to another image.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use vfscale::{Escaped, Received, SendOptions};

use crate::elsewhere;
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::files::place::Place;
use crate::output::{spinner, written};

#[derive(Debug, Args)]
pub(super) struct SendArgs {
    /// Send only what differs from this branch, which the receiver has: a checkpoint, or another
    /// one that can only be read
    #[arg(long, value_name = "A")]
    since: Option<String>,

    /// Leave out the first BYTES of the stream: one of a branch that can only be read has the same
    /// bytes each time, so it goes on where it was cut
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    skip: u64,

    /// The image file or block device, and the branch, mounted or not; main if none is given
    #[arg(value_name = "IMAGE[:BRANCH]")]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct ReceiveArgs {
    /// Print JSON instead of words
    #[arg(long)]
    json: bool,

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The name of the new branch, instead of the one that was sent
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Writes a branch to the standard output.
pub(super) fn send(args: &SendArgs) -> Result<ExitCode, Failure> {
    let SendArgs { since, skip, place } = args;
    let (image, branch) = (&place.image, place.branch());
    if io::stdout().is_terminal() {
        let what = "the stream of a branch is nothing to be read: redirect the standard output";
        return Err(Failure::Usage(what.into()));
    }
    let failed = |error| Failure::Write("standard output".into(), error);
    let out = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    let stream = Stream { file: out.into(), has_begun: Cell::new(false) };
    let bar = spinner(false, "sending");
    let ask = |dir: &Path| {
        // First the data that the kernel holds back.
        elsewhere::sync_kernel(image, dir)?;
        let sent = elsewhere::ask(image, dir, |connection| {
            connection.send_branch(branch, since.as_deref(), *skip, || stream.begin().as_fd())
        });
        sent.map(drop).map_err(|failure| stream.ended(failure))
    };
    let here = || {
        with_pool(image, Access::Write, |pool| {
            let options = SendOptions::new().since(since.as_deref()).skip(*skip);
            pool.send(branch, &options, &mut stream.begin()).map(drop)
        })
    };
    let sent = at_server_or_here(image, "branch", ask, here);
    bar.finish_and_clear();
    sent.map(|()| ExitCode::SUCCESS)
}

/// Makes a branch of what comes by the standard input, and prints its name.
pub(super) fn receive(args: &ReceiveArgs) -> Result<ExitCode, Failure> {
    let ReceiveArgs { json, image, name } = args;
    let failed = |error| Failure::Read("standard input".into(), error);
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let stream = Stream { file: input.into(), has_begun: Cell::new(false) };
    let bar = spinner(*json, "receiving");
    let ask = |dir: &Path| {
        let received = elsewhere::ask(image, dir, |connection| {
            connection.receive_branch(name.as_deref(), || stream.begin().as_fd())
        });
        received.map_err(|failure| stream.ended(failure))
    };
    let here = || {
        with_pool(image, Access::Write, |pool| pool.receive(name.as_deref(), &mut stream.begin()))
    };
    let received = at_server_or_here(image, "branch", ask, here);
    bar.finish_and_clear();
    let Received { name, bytes, data } = received?;
    let mut out = io::stdout().lock();
    written(if *json {
        let value = json!({ "branch": name, "bytes": bytes, "data": data });
        let text = serde_json::to_string_pretty(&value).map_err(io::Error::from);
        text.and_then(|text| writeln!(out, "{text}"))
    } else {
        writeln!(out, "{}", Escaped::new(&name))
    })
}

/// A stream that is read or written once: what has begun is not tried again.
struct Stream {
    file: File,
    has_begun: Cell<bool>,
}

impl Stream {
    fn begin(&self) -> &File {
        self.has_begun.set(true);
        &self.file
    }

    /// Returns the failure of a server, so that no other one is asked if the stream has begun.
    fn ended(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Ended(place, why) if self.has_begun.get() => Failure::Refused(place, why),
            failure => failure,
        }
    }
}
