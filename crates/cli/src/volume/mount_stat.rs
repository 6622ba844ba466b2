//! `vfscale stat DIR`: the requests, caches and space of a mount.

use std::fmt::{self, Write};
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use vfscale::driver::{CacheCounts, LogCounts};
use vfscale::pool::Usage;
use vfscale_fuse::control::Connection;
use vfscale_fuse::{OperationStats, Statistics};

use crate::elsewhere;
use crate::error::Failure;

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Words,
    Json,
    Prometheus,
}

/// Space of a file system.
#[derive(Clone, Copy, Debug, Default)]
struct Space {
    bytes: u64,
    free_bytes: u64,
    inodes: u64,
    free_inodes: u64,
}

/// Reads the figures of the mount that the directory `dir` is on.
pub(super) fn text(dir: &Path, form: Form) -> Result<String, Failure> {
    // First, so that the request for the space is no part of them.
    let statistics = elsewhere::ask(dir, dir, Connection::statistics)?;
    let space = elsewhere::within(elsewhere::PATIENCE, || {
        let found = rustix::fs::statvfs(dir)?;
        let blocks = [found.f_blocks, found.f_bfree].map(|blocks| blocks * found.f_frsize);
        let numbers = [blocks, [found.f_files, found.f_ffree]].concat();
        Ok(numbers.into_iter().flat_map(u64::to_le_bytes).collect())
    });
    let space = space.map_err(|error| elsewhere::refused(dir, &error))?;
    let mut numbers = space.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let mut next = || numbers.next().unwrap_or_default();
    let space = Space { bytes: next(), free_bytes: next(), inodes: next(), free_inodes: next() };
    let mut text = String::new();
    let written = match form {
        Form::Words => words(&mut text, &statistics, space),
        Form::Json => write!(text, "{:#}", as_json(&statistics, space)),
        Form::Prometheus => prometheus(&mut text, dir, &statistics, space),
    };
    // Only a `Display` that fails makes writing to a string fail.
    written.map_err(|error| Failure::System("write", io::Error::other(error)))?;
    text.truncate(text.trim_end().len());
    Ok(text)
}

/// Returns the figures that are single numbers, each with its name in words and its name for
/// Prometheus and JSON.
fn totals(statistics: &Statistics, space: Space) -> Vec<(&'static str, &'static str, u64)> {
    let (mount, counts) = (&statistics.mount, &statistics.counts);
    let mut totals = vec![
        ("bytes", "size_bytes", space.bytes),
        ("free bytes", "free_bytes", space.free_bytes),
        ("inodes at most", "inodes_max", space.inodes),
        ("free inodes", "inodes_free", space.free_inodes),
        ("inodes that the kernel caches", "kernel_inodes", mount.nodes as u64),
        ("lookups that the kernel holds", "kernel_lookups", mount.lookups),
        ("queues of requests", "queues", mount.queues as u64),
        ("threads that serve requests", "threads", mount.workers as u64),
        ("files opened by requests", "opened_files", mount.open_files as u64),
        ("requests that wait for a lock", "waiting_requests", mount.waiting as u64),
        ("polls of workers", "polls", mount.polls),
        ("polls that found a request", "polls_found", mount.polls_found),
        ("dentries", "dentries", counts.dentries as u64),
        ("negative dentries", "negative_dentries", counts.negative_dentries as u64),
        ("unused dentries", "unused_dentries", counts.unused_dentries as u64),
        ("inodes in memory", "cached_inodes", counts.inodes as u64),
        ("unused inodes in memory", "unused_cached_inodes", counts.unused_inodes as u64),
    ];
    if let Some(log) = &statistics.storage.log {
        totals.extend(of_log(log));
    }
    if let Some(cache) = &statistics.storage.cache {
        totals.extend(of_cache(cache));
    }
    if let Some(pool) = &statistics.pool {
        totals.extend(of_pool(pool));
    }
    totals
}

/// Returns the figures of the log of a volume, as [`totals`] does. Events count from the mount on.
fn of_log(log: &LogCounts) -> [(&'static str, &'static str, u64); 8] {
    [
        ("bytes of the log", "log_size_bytes", log.bytes),
        ("bytes of the log in use", "log_used_bytes", log.used_bytes),
        ("log transactions", "log_transactions_total", log.commits),
        ("log checkpoints", "log_checkpoints_total", log.checkpoints),
        ("log writes", "log_writes_total", log.writes),
        ("log flushes", "log_flushes_total", log.flushes),
        ("waits for log space", "log_space_waits_total", log.space_waits),
        ("waits for memory of changed metadata", "log_memory_waits_total", log.memory_waits),
    ]
}

/// Returns the figures of the cache of a volume, as [`totals`] does.
fn of_cache(cache: &CacheCounts) -> [(&'static str, &'static str, u64); 4] {
    [
        ("bytes of the data cache at most", "cache_max_bytes", cache.bytes_max),
        ("clean bytes in the data cache", "cache_clean_bytes", cache.clean_bytes),
        ("dirty bytes in the data cache", "cache_dirty_bytes", cache.dirty_bytes),
        ("bytes of changed metadata", "changed_metadata_bytes", cache.changed_metadata_bytes),
    ]
}

/// Returns the figures of an image with branches, as [`totals`] does.
fn of_pool(pool: &Usage) -> [(&'static str, &'static str, u64); 3] {
    [
        ("bytes of the image of all branches", "pool_size_bytes", pool.size),
        ("free bytes of the image", "pool_free_bytes", pool.free),
        ("branches of the image", "pool_branches", pool.branches),
    ]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn words(text: &mut String, statistics: &Statistics, space: Space) -> fmt::Result {
    for (name, _, value) in totals(statistics, space) {
        writeln!(text, "{name}: {value}")?;
    }
    writeln!(text, "transport: {}", statistics.mount.transport)?;
    writeln!(text, "polling: {}", statistics.mount.polling)?;
    writeln!(text, "requests: {}", statistics.mount.requests)?;
    if !statistics.operations.is_empty() {
        writeln!(
            text,
            "\n{:<20} {:>12} {:>10} {:>12}",
            "operation", "count", "mean us", "longest us"
        )?;
    }
    for stats in &statistics.operations {
        let (mean, longest) = (micros(stats.mean()), micros(stats.longest));
        writeln!(text, "{:<20} {:>12} {mean:>10.1} {longest:>12.1}", stats.name, stats.count)?;
    }
    Ok(())
}

fn as_json(statistics: &Statistics, space: Space) -> Value {
    let operation = |stats: &OperationStats| {
        json!({
            "operation": stats.name,
            "count": stats.count,
            "mean_ns": stats.mean().as_nanos() as u64,
            "longest_ns": stats.longest.as_nanos() as u64,
            "total_ns": stats.total.as_nanos() as u64,
        })
    };
    let operations: Value = statistics.operations.iter().map(operation).collect();
    let mut value = json!({
        "requests": statistics.mount.requests,
        "transport": statistics.mount.transport.to_string(),
        "polling": statistics.mount.polling.to_string(),
        "operations": operations,
    });
    for (_, name, number) in totals(statistics, space) {
        value[name] = number.into();
    }
    value
}

/// Writes the figures in the text format of Prometheus, version 0.0.4.
fn prometheus(text: &mut String, dir: &Path, statistics: &Statistics, space: Space) -> fmt::Result {
    let dir = label(&dir.display().to_string());
    for (help, name, value) in totals(statistics, space) {
        writeln!(text, "# HELP vfscale_{name} Number of {help}.")?;
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        writeln!(text, "# TYPE vfscale_{name} {kind}")?;
        writeln!(text, "vfscale_{name}{{dir=\"{dir}\"}} {value}")?;
    }
    let transport = statistics.mount.transport;
    writeln!(
        text,
        "# HELP vfscale_transport_info How the kernel and the mount exchange messages."
    )?;
    writeln!(text, "# TYPE vfscale_transport_info gauge")?;
    writeln!(text, "vfscale_transport_info{{dir=\"{dir}\",transport=\"{transport}\"}} 1")?;
    let name = "vfscale_request_seconds";
    writeln!(text, "# HELP {name} Service times of requests, until the reply is ready.")?;
    writeln!(text, "# TYPE {name} histogram")?;
    for stats in &statistics.operations {
        let labels = format!("dir=\"{dir}\",operation=\"{}\"", stats.name);
        let mut below = 0;
        for (class, count) in stats.classes.iter().enumerate() {
            below += count;
            let bound = OperationStats::class_bound(class)
                .map_or_else(|| "+Inf".into(), |bound| bound.as_secs_f64().to_string());
            writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}")?;
        }
        writeln!(text, "{name}_sum{{{labels}}} {}", stats.total.as_secs_f64())?;
        // A scraper rejects a count other than that of the last class, which a request that is
        // counted meanwhile would make.
        writeln!(text, "{name}_count{{{labels}}} {below}")?;
    }
    Ok(())
}

/// Escapes the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
