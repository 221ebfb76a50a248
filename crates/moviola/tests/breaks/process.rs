//! One run of the command that cannot take the machine with it.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a process may map, in kilobytes.
const MEMORY: u64 = 4 << 20;

/// How long it may take; what is refused is refused in a fraction of this.
const TIME: Duration = Duration::from_secs(120);

/// No message of ours is longer.
const LONGEST_MESSAGE: usize = 1000;

/// A run of the command that is about to begin.
pub(crate) struct Run {
    command: Command,
    memory: u64,
}

impl Run {
    /// `moviola` with some arguments, under the limit of memory.
    pub(crate) fn of<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Run {
        let mut command = Command::new("sh");
        // A file that grows too long is then an error, as on a full disk, and not a signal.
        let limits = "trap '' XFSZ; ulimit -f \"$LONGEST\"; ulimit -v \"$LIMIT\"";
        command.arg("-c").arg(format!("{limits} && exec \"$0\" \"$@\""));
        command.arg(binary()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("LONGEST", "unlimited");
        Run { command, memory: MEMORY }
    }

    /// One variable of its environment.
    pub(crate) fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// No file may have more than so many blocks of 512 bytes.
    pub(crate) fn with_files_of(self, blocks: u32) -> Run {
        self.with("LONGEST", blocks.to_string())
    }

    /// A smaller limit, in kilobytes.
    pub(crate) fn within_memory(self, memory: u64) -> Run {
        Run { memory, ..self }
    }

    /// Lets it begin.
    pub(crate) fn begin(mut self) -> Running {
        let mut child = self.command.env("LIMIT", self.memory.to_string()).spawn().unwrap();
        let outputs =
            [collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap())];
        Running { child, outputs, began: Instant::now() }
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn ended(self) -> Ended {
        self.begin().ended()
    }
}

/// A run that goes on.
pub(crate) struct Running {
    child: Child,
    outputs: [thread::JoinHandle<String>; 2],
    began: Instant,
}

impl Running {
    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }

    /// Waits for it, but not for ever.
    #[track_caller]
    pub(crate) fn ended(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.began.elapsed() > TIME {
                self.child.kill().unwrap();
                panic!("it hung for {TIME:?}");
            }
            thread::sleep(Duration::from_millis(2));
        };
        let took = self.began.elapsed();
        let [said, complained] = self.outputs.map(|output| output.join().unwrap());
        Ended { status, said, complained, took }
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// What it wrote to the standard output.
    pub(crate) said: String,
    /// What it wrote to the standard error.
    pub(crate) complained: String,
    pub(crate) took: Duration,
}

impl Ended {
    /// It refused by one short message that holds all of `words`.
    #[track_caller]
    pub(crate) fn refused(&self, words: &[&str]) {
        self.sane();
        assert_eq!(self.status.code(), Some(2), "{self:?}");
        let errors = self.complained.lines().filter(|line| line.starts_with("error:"));
        let [message] = errors.collect::<Vec<_>>()[..] else { panic!("{self:?}") };
        assert!(message.len() <= LONGEST_MESSAGE, "{} bytes: {message}", message.len());
        self.told(words);
    }

    /// It ended with an exit code and told all of `words`.
    #[track_caller]
    pub(crate) fn ended_with(&self, code: i32, words: &[&str]) {
        self.sane();
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self.told(words);
    }

    /// It took no longer.
    #[track_caller]
    pub(crate) fn within(&self, seconds: u64) {
        assert!(self.took <= Duration::from_secs(seconds), "it took {:?}", self.took);
    }

    #[track_caller]
    fn told(&self, words: &[&str]) {
        for word in words {
            let is_told = self.said.contains(word) || self.complained.contains(word);
            assert!(is_told, "no `{word}` in: {}{}", self.said, self.complained);
        }
    }

    /// It neither panicked nor aborted.
    #[track_caller]
    fn sane(&self) {
        for word in ["panicked", "memory allocation", "RUST_BACKTRACE", "overflow"] {
            assert!(!self.complained.contains(word), "{self:?}");
        }
        assert!(self.status.code().is_some(), "{self:?}");
    }
}

/// The command that is tried: `MOVIOLA_BINARY`, or the one that was built with these tests.
fn binary() -> OsString {
    let built = || assert_cmd::cargo::cargo_bin("moviola").into_os_string();
    std::env::var_os("MOVIOLA_BINARY").unwrap_or_else(built)
}

/// Whether everything is tried, however long it takes: at how many moments each command is killed is then
/// said by `MOVIOLA_BREAK_MOMENTS`.
pub(crate) fn is_thorough() -> bool {
    moments().is_some()
}

/// At how many moments each command is killed, if that is said.
#[expect(clippy::disallowed_methods, reason = "tests have no other arguments")]
pub(crate) fn moments() -> Option<u32> {
    std::env::var("MOVIOLA_BREAK_MOMENTS").ok().map(|text| text.parse().unwrap())
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
