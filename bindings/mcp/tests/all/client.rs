//! A client of the program: messages of JSON, a line each.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The command beside the program, or else the one in PATH, as the program finds it.
pub fn vfscale(args: &[&str], dir: &Path) -> String {
    let beside = Path::new(env!("CARGO_BIN_EXE_vfscale-mcp")).with_file_name("vfscale");
    let program = if beside.exists() { beside } else { "vfscale".into() };
    let done = Command::new(program).args(args).current_dir(dir).output().unwrap();
    let text = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
    assert!(done.status.success(), "{args:?}: {text}");
    text
}

/// An image in a directory of its own.
pub struct Image {
    pub dir: tempfile::TempDir,
}

impl Image {
    pub fn new() -> Image {
        let dir = tempfile::tempdir().unwrap();
        vfscale(&["mkfs", "work.vfs", "--size", "64M"], dir.path());
        Image { dir }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("work.vfs")
    }

    /// Starts a server of the image.
    pub fn serve(&self, options: &[&str]) -> Client {
        let mut client = Client::start(options, &self.path());
        client.initialize();
        client
    }
}

/// Returns whether branches can be mounted here, and says so if not.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists()
        && Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !can {
        println!("######## SKIPPED: tools in mounts: needs root and /dev/fuse");
    }
    can
}

/// A server, and the pipes to it.
pub struct Client {
    pub child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    last: u64,
}

impl Drop for Client {
    fn drop(&mut self) {
        // As hosts do: the end of its input ends a server.
        self.stdin = None;
        let _ = self.child.wait();
    }
}

impl Client {
    pub fn start(options: &[&str], image: &Path) -> Client {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vfscale-mcp"));
        command.args(options).arg(image).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Client { child, stdin, stdout: BufReader::new(stdout).lines(), last: 0 }
    }

    fn initialize(&mut self) {
        let client = json!({"name": "test", "version": "1"});
        let version = "2025-06-18";
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let reply = self.request("initialize", params);
        assert_eq!(reply["result"]["serverInfo"]["name"], "vfscale-mcp", "{reply}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Sends a line.
    pub fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// Sends a request, and returns its number.
    pub fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Waits for the reply to a request; others are dropped.
    pub fn reply(&mut self, id: u64) -> Value {
        loop {
            let line = self.stdout.next().expect("the server has ended").unwrap();
            let reply: Value = serde_json::from_str(&line).unwrap();
            if reply["id"] == id {
                return reply;
            }
        }
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.reply(id)
    }

    /// Returns the structured result of a call, or the words of its error.
    pub fn try_call(&mut self, tool: &str, arguments: Value) -> Result<Value, String> {
        let reply = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        outcome(&reply)
    }

    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let shown = arguments.to_string();
        self.try_call(tool, arguments).unwrap_or_else(|why| panic!("{tool} {shown}: {why}"))
    }

    #[track_caller]
    pub fn refused(&mut self, tool: &str, arguments: Value, words: &str) {
        match self.try_call(tool, arguments) {
            Err(why) => assert!(why.contains(words), "{tool}: {why}"),
            Ok(result) => panic!("{tool}: {result}"),
        }
    }

    /// Returns the records of the audit.
    pub fn audit(&mut self) -> Vec<Value> {
        let reply = self.request("resources/read", json!({"uri": "vfscale://audit"}));
        let text = reply["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Returns the structured result in a reply, or the words of the error.
pub fn outcome(reply: &Value) -> Result<Value, String> {
    if let Some(error) = reply.get("error") {
        return Err(error["message"].as_str().unwrap().to_owned());
    }
    let result = &reply["result"];
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    if result["isError"] == true { Err(text) } else { Ok(result["structuredContent"].clone()) }
}
