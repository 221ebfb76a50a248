//! Our side of `cargo xtask bench`: does the work that it is asked for and says how long it took.
//!
//! One line of JSON each way over stdin and stdout; [`protocol`] has the words. It ends when its
//! input closes.

use std::io::{self, BufRead, Write};

use anyhow::{Context, Result, bail};
use kernels::InstructionSet;

mod cases;
mod networks;
mod protocol;
mod training;

/// The allocator of the moviola binary, so that the numbers are those of its users.
#[global_allocator]
static ALLOCATOR: kernels::Allocator = kernels::Allocator;

fn main() -> Result<()> {
    kernels::keep_freed_pages();
    let threads = threads(std::env::args().skip(1))?;
    // As in the moviola binary, the work runs on the pool and not beside it.
    let pool = instruction_set()?.pool(threads)?;
    pool.install(|| serve(io::stdin().lock(), io::stdout().lock(), &cases::all(threads)))
}

/// The instruction set that the environment asks for, as in the moviola binary.
fn instruction_set() -> Result<InstructionSet> {
    match std::env::var_os("MOVIOLA_ISA").filter(|name| !name.is_empty()) {
        Some(name) => name.to_string_lossy().parse().context("MOVIOLA_ISA"),
        None => Ok(InstructionSet::best()),
    }
}

/// Reads `--threads N`, the only argument.
fn threads(arguments: impl Iterator<Item = String>) -> Result<usize> {
    let arguments: Vec<_> = arguments.collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--threads", count] => match count.parse() {
            Ok(count) if count > 0 => Ok(count),
            _ => bail!("--threads {count} is not a count of at least 1"),
        },
        _ => bail!("give `--threads N` and nothing else; `cargo xtask bench` does"),
    }
}

/// Says hello, then answers every line of `input`.
fn serve(input: impl BufRead, mut output: impl Write, cases: &[cases::Case]) -> Result<()> {
    protocol::say(&mut output, &protocol::hello(cases))?;
    let mut current = None;
    for line in input.lines() {
        let line = line.context("cannot read the request")?;
        let request = protocol::parse(&line)?;
        protocol::say(&mut output, &protocol::answer(cases, &mut current, &request))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<usize> {
        threads(arguments.iter().map(|argument| argument.to_string()))
    }

    #[test]
    fn the_thread_count_is_read_and_checked() {
        assert_eq!(parse(&["--threads", "3"]).unwrap(), 3);
        for planted in [&["--threads", "0"][..], &["--threads", "x"], &["--threads"], &["3"], &[]] {
            assert!(parse(planted).is_err(), "{planted:?}");
        }
    }

    #[test]
    fn each_line_is_answered() {
        let input = "{\"case\":\"none\",\"repeat\":1}\n{\"case\":\"none\",\"repeat\":1}\n";
        let mut output = Vec::new();
        serve(input.as_bytes(), &mut output, &[]).unwrap();
        assert_eq!(String::from_utf8(output).unwrap().lines().count(), 3);
        assert!(serve("not json\n".as_bytes(), Vec::new(), &[]).is_err());
    }
}
