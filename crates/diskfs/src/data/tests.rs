use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::atomic::Ordering;
use vfscale_sync::page::PAGE_SIZE;

use super::*;
use crate::base::fault::Fault;
use crate::file_io::Store;
use crate::file_io::tests::POISON;
use crate::page_cache::{Mapping, PAGE};

mod behind;
mod cuts;
#[cfg(not(any(loom, shuttle)))]
mod large;
mod syncs;
mod volume;
