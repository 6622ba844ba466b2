//! `vfscale-mcp`: branches of an image for agents, by the Model Context Protocol.
//!
//! A client starts this program, and speaks with it over its standard input and output. It listens
//! to no network. Each call of a tool is whole: between two calls the image is closed, so mounts,
//! commands and other servers of the image may come at any time.
//!
//! * Files of a branch are read and written by the library if no other process has the image open;
//!   else inside a mount of the branch, by this program again ([`reach`]).
//! * What concerns whole branches is done by `vfscale` commands ([`command`]), which find the
//!   process that has the image open.
//! * A call that can change files stands between two states of its branch ([`audit`]): its result
//!   says what has changed, and a log keeps that.
//!
//! | module | contents |
//! | --- | --- |
//! | `server` | the protocol |
//! | `tools` | the tools, and the table of them |
//! | `session` | what a call may do: options, locks, states before and after it |
//! | `audit` | the log of calls |
//! | `changes`, `history`, `output` | what commands and calls tell |
//! | `reach` | the files of a branch, wherever the image is open |
//! | `tree` | the calls on files that tools need |
//! | `command` | `vfscale` commands |
//! | `process` | processes with limits |
//! | `refusal` | errors of calls |

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use rmcp::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::signal::unix::{SignalKind, signal};

mod audit;
mod changes;
mod command;
mod history;
mod output;
mod process;
mod reach;
mod refusal;
mod server;
mod session;
mod tools;
mod tree;

use refusal::{Refusal, Result};
use server::Server;
use session::{Options, Session};

/// The most bytes of a message. Longer ones are dropped without an answer.
const MESSAGE_BYTES: usize = 128 << 20;

/// Serve branches of an image to an agent, by the Model Context Protocol on standard input and
/// output
///
/// A client of the protocol starts this, `vfscale mcp IMAGE`. Its tools fork, compare, merge and
/// roll back branches, read and write their files, and run commands in them. Each call that can
/// change files tells what it has changed.
///
/// The tool `run` starts any command, with the rights of the user who has started this. Only what
/// it writes in the branch can be rolled back: --no-run leaves the tool out.
#[derive(Debug, Parser)]
#[command(name = "vfscale-mcp", version)]
struct Args {
    /// Offer only tools that change nothing
    #[arg(long)]
    read_only: bool,

    /// Let only this branch, and those that are forked from it, be changed; it is the default of
    /// all tools. Others may be read
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,

    /// Leave out the tool that runs commands
    #[arg(long)]
    no_run: bool,

    /// Append a line of JSON to this file for each call that can change something
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,

    /// Keep the state before each call that has changed files, as a checkpoint
    #[arg(long)]
    checkpoint_each: bool,

    /// The image of a volume, or a block device with one
    #[arg(value_name = "IMAGE", required_unless_present = "inside")]
    image: Option<PathBuf>,

    /// Make one call on the files of the mount around the working directory: a request of JSON on
    /// the standard input, and its answer on the standard output
    #[arg(long, hide = true, exclusive = true)]
    inside: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.image {
        None => reach::answer_inside(tools::on_tree),
        Some(image) => serve(Options {
            image,
            read_only: args.read_only,
            branch: args.branch,
            runs: !args.no_run,
            audit: args.audit,
            checkpoint_each: args.checkpoint_each,
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            // Clients show what a server says on its standard error.
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("vfscale-mcp: {refusal}\n"),
            );
            ExitCode::FAILURE
        }
    }
}

/// Serves until the client closes the standard input, or a signal comes.
fn serve(options: Options) -> Result<()> {
    let session = Arc::new(Session::new(options)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Refusal::new(format!("cannot start threads: {e}")))?;
    let served = runtime.block_on(async {
        let failed = |e: std::io::Error| Refusal::new(format!("cannot catch signals: {e}"));
        let mut ended = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
        let serving = async {
            let (input, output) = rmcp::transport::io::stdio_pipes();
            let pipes = AsyncRwTransport::new(input, output).with_max_line_length(MESSAGE_BYTES);
            match Server::new(session.clone()).serve(pipes).await {
                Ok(running) => {
                    let _ = running.waiting().await;
                    Ok(())
                }
                Err(e) => Err(Refusal::new(format!("no session began: {e}"))),
            }
        };
        tokio::select! {
            served = serving => served,
            _ = ended.recv() => Ok(()),
            _ = interrupted.recv() => Ok(()),
        }
    });
    // Commands that still run end now; calls under way come to their end.
    session.end();
    drop(runtime);
    served
}
