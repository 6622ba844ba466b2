//! Messages of the library on standard error.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::stderr::Messages;

/// Starts logging to standard error, or to what takes its place
/// ([`redirect`](crate::stderr::redirect)). With `colours` the levels have colours if that is a
/// terminal. `RUST_LOG` selects the levels (`debug`, `vfscale_fuse=trace`, ...); the default is
/// warnings. Must be called once, first.
///
/// # Panics
/// Panics if the process logs elsewhere already.
pub fn start(colours: bool) {
    let selected = std::env::var("RUST_LOG").unwrap_or_default();
    let (targets, complaint) = match selected.parse::<Targets>() {
        Ok(targets) if !selected.is_empty() => (targets, None),
        Ok(_) => (Targets::new().with_default(LevelFilter::WARN), None),
        Err(e) => (Targets::new().with_default(LevelFilter::WARN), Some(e)),
    };
    let colours = colours && std::io::IsTerminal::is_terminal(&std::io::stderr());
    // Errors of standard error would be printed to standard error, which panics.
    let layer = tracing_subscriber::fmt::layer().log_internal_errors(false);
    let layer = layer.with_writer(|| Messages).with_ansi(colours);
    tracing_subscriber::registry().with(layer).with(targets).init();
    if let Some(e) = complaint {
        tracing::warn!("RUST_LOG={selected} is not understood ({e}); showing warnings");
    }
}
