//! Tests of the command as people use it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod applies;
mod branches;
mod command;
#[path = "../common/mod.rs"]
mod common;
mod copy_out;
mod crashlab;
mod decoy;
mod documents;
mod files;
mod first_branch;
mod fixed_device;
mod for_all;
mod freeze;
mod full_host;
mod history;
mod joined;
mod json;
mod live;
mod native;
mod native_user;
mod odd_names;
mod on_volume;
mod server;
mod several;
mod travels;
mod views;
mod volume;
