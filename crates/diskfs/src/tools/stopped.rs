//! Descriptions of the events that stop a mount.

use super::moment::moment;
use super::value::Value;
use crate::format::superblock::Stopped;

/// Describes the event that stopped a mount of a volume that was not checked since.
pub(crate) fn stopped(stopped: &Stopped) -> Value {
    Value::fields()
        .with("by", format!("V{:03}", stopped.by()))
        .with("when", moment(stopped.when()))
        .with("why", stopped.why())
}
