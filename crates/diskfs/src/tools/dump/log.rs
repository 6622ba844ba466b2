//! The log, record by record.

use vfscale_journal::{
    Checkpoint, FLAG_COMMIT, FLAG_START, Inspection, LogKey, Operation, RecordHeader, RecordKind,
};

use super::Value;
use crate::buffer::{KIND_BLOCK, KIND_INODE_CHUNK};
use crate::format::header::HEADER_BYTES;
use crate::inode::incore::KIND_INODE;

/// Shows a log: its records in the order of writing, and the checkpoints that a recovery would
/// replay.
pub(super) fn log(inspection: &Inspection<'_>) -> vfscale_journal::Result<Value> {
    let records = inspection.records().iter().map(record).collect::<Value>();
    let value = Value::fields().with("records", records);
    let live = match inspection.live() {
        Ok(live) => live,
        Err(error) => return Ok(value.with("damage", error.to_string())),
    };
    let ends = live.first().zip(live.last()).map(|(first, last)| {
        Value::fields().with("tail", first.lsn.to_string()).with("last", last.lsn.to_string())
    });
    let mut checkpoints = Vec::new();
    let read = inspection.checkpoints(|found| {
        checkpoints.push(checkpoint(found));
        Ok(())
    });
    let value = value.with("recovery", ends).with("checkpoints", checkpoints);
    Ok(match read {
        Ok(()) => value,
        Err(error) => value.with("damage", error.to_string()),
    })
}

fn record(record: &RecordHeader) -> Value {
    let kind = match record.kind {
        RecordKind::Data => "data",
        RecordKind::Open => "opened",
        RecordKind::Tail => "tail",
        RecordKind::Unmount => "closed",
    };
    let value = Value::fields()
        .with("lsn", record.lsn.to_string())
        .with("kind", kind)
        .with("epoch", record.epoch)
        .with("blocks", record.blocks)
        .with("tail", record.tail_lsn.to_string())
        .with("durable", record.sync_lsn.to_string());
    if record.kind != RecordKind::Data {
        return value;
    }
    value
        .with("checkpoint", record.checkpoint)
        .with("first", record.flags & FLAG_START != 0)
        .with("last", record.flags & FLAG_COMMIT != 0)
        .with("bytes", record.payload_bytes)
}

fn checkpoint(checkpoint: Checkpoint<'_>) -> Value {
    let operations = checkpoint.operations.map(|operation| match operation {
        Ok(operation) => self::operation(&operation),
        Err(why) => Value::fields().with("damage", why),
    });
    Value::fields()
        .with("checkpoint", checkpoint.sequence)
        .with("lsn", checkpoint.lsn.to_string())
        .with("bytes", checkpoint.stream_bytes)
        .with("operations", operations.collect::<Value>())
}

fn operation(operation: &Operation<'_>) -> Value {
    match operation {
        Operation::Cancel { key } => key_of(Value::fields().with("operation", "cancel"), *key),
        Operation::Item { key, bytes } => {
            let value = key_of(Value::fields().with("operation", "item"), *key);
            let value = value.with("bytes", bytes.len() as u64);
            let is_block = key.kind == KIND_BLOCK && bytes.len() > HEADER_BYTES;
            if is_block { value.with("magic", Value::bytes(&bytes[..4])) } else { value }
        }
    }
}

fn key_of(value: Value, key: LogKey) -> Value {
    match key.kind {
        KIND_BLOCK => value.with("kind", "block").with("block", key.id),
        KIND_INODE => value.with("kind", "inode").with("inode", key.id),
        KIND_INODE_CHUNK => value.with("kind", "chunk of inodes").with("block", key.id),
        kind => value.with("kind", kind).with("id", key.id),
    }
}
