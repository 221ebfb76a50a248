//! A program that reads for us, and is trusted no more than the file it reads: what it says is bounded, a
//! silence of it is the end, and it is killed and waited for however that comes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may say nothing while we wait for it.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

/// Bytes that are handed on at once, and how many such pieces wait.
const PIECE: usize = 1 << 18;
const PIECES: usize = 4;

/// What is kept of complaints: their end.
const COMPLAINTS: usize = 1 << 14;

/// A program that is running. It is killed and waited for when this goes.
pub(super) struct Program {
    child: Child,
    /// What it complained about, once it has closed that pipe.
    complaints: Receiver<String>,
    silence: Duration,
}

impl Program {
    /// Starts a program, with the pipe it answers through.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(command: &mut Command, silence: Duration) -> io::Result<(Program, Answer)> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let (sender, pieces) = sync_channel(PIECES);
        // The threads end when the program closes its pipes or nobody listens any more. They are not
        // waited for: a grandchild may hold a pipe open after the program is gone.
        thread::spawn(move || {
            let Some(mut output) = output else { return };
            loop {
                let mut piece = vec![0; PIECE];
                let read = read_some(&mut output, &mut piece);
                let is_end = matches!(read, Ok(0) | Err(_));
                let answer = read.map(|count| {
                    piece.truncate(count);
                    piece
                });
                if sender.send(answer).is_err() || is_end {
                    return;
                }
            }
        });
        let (teller, complaints) = sync_channel(1);
        thread::spawn(move || {
            let Some(errors) = errors else { return };
            // Nobody may be left to hear it.
            let _ = teller.send(end_of(errors));
        });
        let answer = Answer { pieces, piece: Vec::new(), at: 0, silence, is_over: false };
        Ok((Program { child, complaints, silence }, answer))
    }

    /// Waits for the program to end by itself, and says what it complained about.
    ///
    /// # Errors
    /// It does not end.
    pub(super) fn end(&mut self) -> io::Result<(ExitStatus, String)> {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if begun.elapsed() > self.silence {
                self.kill();
                return Err(silent(self.silence));
            }
            thread::sleep(Duration::from_millis(1));
        };
        Ok((status, self.complaints.recv_timeout(Duration::from_secs(1)).unwrap_or_default()))
    }

    /// Ends the program; if it has ended already, nothing happens.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a program writes, as it comes.
pub(super) struct Answer {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
    silence: Duration,
    is_over: bool,
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() && !self.is_over {
            self.piece = match self.pieces.recv_timeout(self.silence) {
                Ok(piece) => piece?,
                Err(RecvTimeoutError::Timeout) => return Err(silent(self.silence)),
                Err(RecvTimeoutError::Disconnected) => Vec::new(),
            };
            (self.at, self.is_over) = (0, self.piece.is_empty());
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..][..count]);
        self.at += count;
        Ok(count)
    }
}

fn silent(silence: Duration) -> io::Error {
    let what = format!("the program that reads it did nothing for {} s", silence.as_secs_f64());
    io::Error::new(ErrorKind::TimedOut, what)
}

fn read_some(pipe: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match pipe.read(piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// The end of what a pipe carries, however much that is.
fn end_of(mut pipe: impl Read) -> String {
    let mut kept = VecDeque::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = read_some(&mut pipe, &mut piece) {
        kept.extend(&piece[..count]);
        kept.drain(..kept.len().saturating_sub(COMPLAINTS));
    }
    String::from_utf8_lossy(kept.make_contiguous()).into_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    fn shell(script: &str) -> (Program, Answer) {
        Program::start(Command::new("sh").args(["-c", script]), SHORT).expect("a shell starts")
    }

    #[test]
    fn a_program_that_says_nothing_is_given_up() {
        let begun = Instant::now();
        let (mut program, mut answer) = shell("exec sleep 100");
        assert_eq!(answer.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(program.end().unwrap_err().kind(), ErrorKind::TimedOut);
        drop(program);
        // A grandchild that holds the pipes is not waited for.
        let (mut program, mut answer) = shell("sleep 100 & exit 3");
        assert_eq!(program.end().unwrap().0.code(), Some(3));
        assert_eq!(answer.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn what_it_says_arrives_and_its_last_complaint_is_kept() {
        let (mut program, mut answer) = shell(
            "yes 0123456789abcde | head -c 1000000; yes no | head -c 100000 >&2; echo why >&2",
        );
        let mut said = Vec::new();
        answer.read_to_end(&mut said).unwrap();
        assert_eq!((said.len(), &said[..4]), (1_000_000, &b"0123"[..]));
        let (status, complaints) = program.end().unwrap();
        assert!(
            status.success() && complaints.len() <= COMPLAINTS && complaints.ends_with("why\n")
        );
    }

    #[test]
    fn a_flood_is_cut_off_when_nobody_listens() {
        let (mut program, mut answer) = shell("exec yes");
        let mut some = [0; 100];
        answer.read_exact(&mut some).unwrap();
        drop(answer);
        program.kill();
        assert!(program.child.try_wait().unwrap().is_some());
    }
}
