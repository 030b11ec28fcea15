//! Server processes that cannot outlive the test binary, whatever ends it: a return, a panic, an interrupt, a kill.
//!
//! Each server is the child of a small shell that waits for the end of its own standard input. Only the test binary
//! holds the other end of that pipe, and the kernel closes it when the process is gone; the shell then kills the
//! server. A line on the pipe is the name of a signal that the shell passes on. The shell leads a process group of its own, so that an interrupt from the terminal does not reach it first.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts the server in the background, passes signals on until the end of input, then ends it: by TERM and, twenty
/// seconds later, by KILL. Exits with the server's own status.
const GUARD: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
( while read -r signal <&3; do kill -$signal $child; done
  kill -TERM $child; sleep 20; kill -KILL $child ) 2>/dev/null &
keeper=$!
exec 3<&-
wait $child
status=$?
kill -KILL $keeper 2>/dev/null
exit $status
"#;

/// A running server on its leash.
#[derive(Debug)]
pub(crate) struct Leash {
    name: &'static str,
    guard: Child,
    log: PathBuf,
}

impl Leash {
    /// Starts `command` (its program, arguments and environment); standard output and error go to `log`.
    pub(crate) fn start(name: &'static str, command: &Command, log: PathBuf) -> Self {
        let output = File::create(&log).unwrap_or_else(|error| panic!("cannot create {}: {error}", log.display()));
        let errors = output.try_clone().expect("duplicate a file handle");
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, name]).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => guard.env(key, value),
                None => guard.env_remove(key),
            };
        }
        guard.stdin(Stdio::piped()).stdout(output).stderr(errors).process_group(0);
        let guard = guard.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { name, guard, log }
    }

    /// Panics, with the end of the log, if the server has ended.
    pub(crate) fn assert_running(&mut self) {
        if let Some(status) = self.guard.try_wait().expect("wait for a child") {
            panic!("{} ended with {status}:\n{}", self.name, self.log_tail());
        }
    }

    /// Waits until `ready` holds; panics with the end of the log if the server ends or the time is over.
    pub(crate) fn wait_until(&mut self, patience: Duration, what: &str, mut ready: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !ready() {
            self.assert_running();
            if begun.elapsed() > patience {
                panic!("{}: {what}: not within {patience:?}:\n{}", self.name, self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends the server a signal: `TERM`, `KILL`. Nothing happens if it has ended.
    pub(crate) fn signal(&mut self, name: &str) {
        let orders = self.guard.stdin.as_mut().expect("not asked to end yet");
        // The shell goes with the server; then there is nobody to tell.
        let _ = orders.write_all(format!("{name}\n").as_bytes());
    }

    /// Waits until the server has ended by itself or by a signal, and returns its exit status (as a shell has it: 128 and
    /// the number of the signal). Panics after `patience`.
    pub(crate) fn wait_for_end(&mut self, patience: Duration) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.guard.try_wait().expect("wait for a child") {
                return status.code().expect("the shell exits, whatever ends the server");
            }
            assert!(begun.elapsed() < patience, "{} runs on after {patience:?}:\n{}", self.name, self.log_tail());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks the server to end (TERM) and returns whether it ended with success.
    pub(crate) fn stop(&mut self) -> bool {
        drop(self.guard.stdin.take());
        self.guard.wait().expect("wait for a child").success()
    }

    /// The last lines the server wrote.
    pub(crate) fn log_tail(&self) -> String {
        let mut text = String::new();
        let _ = File::open(&self.log).and_then(|mut file| file.read_to_string(&mut text));
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.stop();
    }
}
