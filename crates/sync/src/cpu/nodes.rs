//! The NUMA nodes of CPUs and of slots.
//!
//! # Purpose
//!
//! A CPU reaches the memory of its own node faster than that of others. What a slot has belongs to
//! one CPU, and so to one node: the lists of the LRU, the dirty files, the magazines of free
//! objects and pages. Memory that several slots share has a part for each node ([`SlotNodes`]), as
//! "Scaling the VFS" proposes for the lists of dentries (Piggin, "could be made per-zone"). The
//! system puts memory on the node of the CPU that first touches it.
//!
//! A machine with one node has one part, and a slot that knows its number.

#[cfg(not(any(loom, shuttle)))]
use std::fs;
use std::sync::LazyLock;

#[cfg(not(any(loom, shuttle)))]
use super::allowed::CPUS_MAX;

/// The nodes of the slots of one structure.
#[derive(Clone, Debug)]
pub struct SlotNodes {
    of_slot: Box<[u32]>,
    count: u32,
}

impl SlotNodes {
    /// Returns the nodes of `slots` slots on this machine: a slot is on the node of the first of
    /// its CPUs that the process may use. Reads files of `/sys` the first time.
    pub fn of_machine(slots: usize) -> Self {
        static NODES: LazyLock<Vec<u32>> = LazyLock::new(nodes_of_cpus);
        if NODES.is_empty() {
            return Self::numbered((0..slots.max(1)).map(|_| 0));
        }
        let allowed = super::allowed::list();
        let slots = slots.max(1);
        let node = |slot: usize| {
            let first = allowed.iter().copied().find(|cpu| cpu % slots == slot).unwrap_or(slot);
            NODES.get(first).copied().unwrap_or(0)
        };
        Self::numbered((0..slots).map(node))
    }

    /// Returns `slots` slots that are spread over `nodes` nodes, neighbours on one node. For tests
    /// on machines with one node.
    pub fn pretended(slots: usize, nodes: usize) -> Self {
        let slots = slots.max(1);
        Self::numbered((0..slots).map(|slot| (slot * nodes.clamp(1, slots) / slots) as u32))
    }

    /// Numbers the nodes that occur from 0, in the order in which they occur.
    fn numbered(nodes: impl Iterator<Item = u32>) -> Self {
        let mut known = Vec::new();
        let mut number = |node: u32| {
            let found = known.iter().position(|other| *other == node);
            found.unwrap_or_else(|| {
                known.push(node);
                known.len() - 1
            }) as u32
        };
        let of_slot = nodes.map(&mut number).collect();
        Self { of_slot, count: known.len() as u32 }
    }

    /// Returns the number of nodes, at least 1.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the node of a slot, less than [`count`](Self::count); 0 if there is no such slot.
    pub fn node(&self, slot: usize) -> usize {
        self.of_slot.get(slot).map_or(0, |node| *node as usize)
    }

    /// Returns the number of slots of a node.
    pub fn slots_of(&self, node: usize) -> usize {
        self.of_slot.iter().filter(|of| **of as usize == node).count()
    }
}

/// Returns nothing: models are small.
#[cfg(any(loom, shuttle))]
fn nodes_of_cpus() -> Vec<u32> {
    Vec::new()
}

/// Returns the node of each CPU; nothing if there is one node, or the system does not tell.
#[cfg(not(any(loom, shuttle)))]
fn nodes_of_cpus() -> Vec<u32> {
    // Miri has no files of the system.
    if cfg!(miri) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir("/sys/devices/system/node") else { return Vec::new() };
    let mut nodes = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
        let list = fs::read_to_string(entry.path().join("cpulist"));
        let (Some(number), Ok(list)) = (number, list) else { continue };
        nodes.push((number, list));
    }
    by_cpu(&nodes)
}

/// Returns the node of each CPU from the nodes' lists of CPUs; nothing if only one node has CPUs.
#[cfg(not(any(loom, shuttle)))]
fn by_cpu(nodes: &[(u32, String)]) -> Vec<u32> {
    let with_cpus = nodes.iter().filter(|(_, list)| cpus(list).next().is_some());
    if with_cpus.count() < 2 {
        return Vec::new();
    }
    let mut by_cpu = Vec::new();
    for (node, list) in nodes {
        for cpu in cpus(list) {
            if by_cpu.len() <= cpu {
                by_cpu.resize(cpu + 1, 0);
            }
            by_cpu[cpu] = *node;
        }
    }
    by_cpu
}

/// Returns the CPUs of a list such as `0-3,8,10-11`. Skips what is not a number or a range of them.
#[cfg(not(any(loom, shuttle)))]
fn cpus(list: &str) -> impl Iterator<Item = usize> + '_ {
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) if last < CPUS_MAX => first..last + 1,
            _ => 0..0,
        }
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
