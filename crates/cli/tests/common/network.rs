//! A network of its own for a client of the test cluster, which can be cut off.
//!
//! The client runs in a network namespace, where this process listens on the ports of the cluster
//! and passes on what arrives. A cut holds back all bytes, in both directions, and closes nothing:
//! so a packet that was sent before the cut, or during it, arrives when the network heals, as late
//! as that may be. A loss ends all connections without telling either end, as a firewall does that
//! forgets them; new ones work. The namespace ends with its processes and sockets.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// The state that all connections of a network share.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    /// Number of losses so far.
    losses: u64,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Sleeps while the network is cut; returns the number of losses so far.
    fn pass(&self) -> u64 {
        let state = self.state.lock().unwrap();
        self.changed.wait_while(state, |state| state.is_cut).unwrap().losses
    }
}

/// A network namespace that reaches the cluster through this process.
pub struct Network {
    namespace: File,
    gate: Arc<Gate>,
    listeners: Vec<Arc<TcpListener>>,
}

impl Network {
    /// Makes a network that reaches the cluster of a configuration file.
    pub fn to_cluster(conf: &Path) -> Self {
        let ports = listening(&range(&fs::read_to_string(conf).unwrap()));
        assert!(ports.len() >= 4, "a monitor and three OSDs listen: {ports:?}");
        // A thread of its own, which keeps the new namespace until it ends.
        let made = thread::spawn(move || namespace(&ports).unwrap()).join();
        let (namespace, listeners) = made.unwrap();
        let gate = Arc::new(Gate::default());
        for listener in &listeners {
            let (listener, gate) = (listener.clone(), gate.clone());
            thread::spawn(move || serve(&listener, &gate));
        }
        Self { namespace, gate, listeners }
    }

    /// Has a program run in this network.
    pub fn enter(&self, command: &mut Command) {
        let namespace = self.namespace.as_raw_fd();
        // SAFETY: between fork and exec there is one system call, which allocates nothing. The
        // caller spawns the command while this value has the file open.
        unsafe {
            command.pre_exec(move || match libc::setns(namespace, libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
    }

    /// Cuts the network off.
    pub fn cut(&self) {
        self.gate.change(|state| state.is_cut = true);
    }

    /// Connects it again: what was held back arrives.
    pub fn heal(&self) {
        self.gate.change(|state| state.is_cut = false);
    }

    /// Loses all connections, and heals.
    pub fn lose(&self) {
        self.gate.change(|state| {
            state.losses += 1;
            state.is_cut = false;
        });
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.heal();
        for listener in &self.listeners {
            // SAFETY: the descriptor is open. A thread that accepts on it wakes, and ends.
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

/// Makes a network namespace whose loopback device is up, and listens there.
fn namespace(ports: &[u16]) -> io::Result<(File, Vec<Arc<TcpListener>>)> {
    // SAFETY: only this thread gets the new namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    assert!(up.success(), "the loopback device is up");
    let listen = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).map(Arc::new);
    let listeners = ports.iter().map(listen).collect::<io::Result<_>>()?;
    Ok((File::open("/proc/thread-self/ns/net")?, listeners))
}

/// Returns the ports of the cluster: that of the monitor is the one before the first of the others.
fn range(conf: &str) -> std::ops::RangeInclusive<u16> {
    let value = |key: &str| {
        let line = conf.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim_start_matches(" = ").parse::<u16>().unwrap()
    };
    value("ms bind port min") - 1..=value("ms bind port max")
}

/// Returns those of the ports on which a program listens.
fn listening(range: &std::ops::RangeInclusive<u16>) -> Vec<u16> {
    const LISTEN: &str = "0A";
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (_, port) = fields.next()?.split_once(':')?;
        (fields.nth(1)? == LISTEN).then(|| u16::from_str_radix(port, 16).ok()).flatten()
    };
    table.lines().filter_map(port).filter(|port| range.contains(port)).collect()
}

fn serve(listener: &TcpListener, gate: &Arc<Gate>) {
    let port = listener.local_addr().unwrap().port();
    while let Ok((client, _)) = listener.accept() {
        let gate = gate.clone();
        thread::spawn(move || {
            let made = gate.pass();
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
            let (client, server) = (Arc::new(client), Arc::new(server));
            let (from, to, other) = (server.clone(), client.clone(), gate.clone());
            thread::spawn(move || pass_on(&from, &to, &other, made));
            pass_on(&client, &server, &gate, made);
        });
    }
}

/// Passes on what arrives until one side closes the connection, which was `made` after so many
/// losses. What arrives on a lost one is dropped, and its end as well.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, gate: &Gate, made: u64) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if gate.pass() == made && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if gate.pass() != made {
        return;
    }
    // The other direction ends as well.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
