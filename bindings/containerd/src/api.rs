//! The messages of `containerd.services.snapshots.v1`, by the numbers of their fields.
//!
//! They are written here, since a compiler of protocol buffers is no part of a stable Rust.

use std::collections::BTreeMap;

use prost_types::{FieldMask, Timestamp};

/// The name of the service.
pub(crate) const SERVICE: &str = "containerd.services.snapshots.v1.Snapshots";

/// A mount that containerd makes.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(string, tag = "2")]
    pub(crate) source: String,
    #[prost(string, tag = "3")]
    pub(crate) target: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) options: Vec<String>,
}

/// The question of `Prepare` and `View`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Begin {
    #[prost(string, tag = "1")]
    pub(crate) snapshotter: String,
    #[prost(string, tag = "2")]
    pub(crate) key: String,
    #[prost(string, tag = "3")]
    pub(crate) parent: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// The question of `Mounts`, `Remove`, `Stat`, `Usage` and `Cleanup`; the last has no key.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Key {
    #[prost(string, tag = "1")]
    pub(crate) snapshotter: String,
    #[prost(string, tag = "2")]
    pub(crate) key: String,
}

/// The answer of `Prepare`, `View` and `Mounts`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mounts {
    #[prost(message, repeated, tag = "1")]
    pub(crate) mounts: Vec<Mount>,
}

/// The question of `Commit`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Commit {
    #[prost(string, tag = "1")]
    pub(crate) snapshotter: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) key: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// The kind of a snapshot.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    prost::Enumeration,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[repr(i32)]
pub(crate) enum Kind {
    Unknown = 0,
    View = 1,
    Active = 2,
    Committed = 3,
}

/// A snapshot as containerd knows it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Info {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) parent: String,
    #[prost(enumeration = "Kind", tag = "3")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "4")]
    pub(crate) created_at: Option<Timestamp>,
    #[prost(message, optional, tag = "5")]
    pub(crate) updated_at: Option<Timestamp>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// The answer of `Stat` and `Update`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Stat {
    #[prost(message, optional, tag = "1")]
    pub(crate) info: Option<Info>,
}

/// The question of `Update`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Update {
    #[prost(string, tag = "1")]
    pub(crate) snapshotter: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) info: Option<Info>,
    #[prost(message, optional, tag = "3")]
    pub(crate) update_mask: Option<FieldMask>,
}

/// The question of `List`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct List {
    #[prost(string, tag = "1")]
    pub(crate) snapshotter: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) filters: Vec<String>,
}

/// A part of the answer of `List`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Listed {
    #[prost(message, repeated, tag = "1")]
    pub(crate) info: Vec<Info>,
}

/// The answer of `Usage`: bytes and inodes.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Usage {
    #[prost(int64, tag = "1")]
    pub(crate) size: i64,
    #[prost(int64, tag = "2")]
    pub(crate) inodes: i64,
}
