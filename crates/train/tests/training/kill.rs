//! A run that is killed without warning, again and again, ends like one that never was.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use train::checkpoint::{find, list};

use crate::run::{Setup, fingerprint};

fn setup() -> Setup {
    Setup { steps: 24, every: 1, batch: 1, ..Setup::default() }
}

/// Not a test of its own: what the test below starts and kills. Its folder comes over stdin.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let mut folder = String::new();
    std::io::stdin().read_to_string(&mut folder).unwrap();
    let mut run = setup().build(Some(Path::new(folder.trim()))).unwrap();
    run.trainer.resume(&[], &Device::flex()).unwrap();
    run.trainer.run().unwrap();
}

/// Whether a checkpoint lies half written beside those that are whole. One that is being removed has
/// the same kind of name, but is older than these.
fn is_writing(folder: &Path) -> bool {
    let newest = list(folder).ok().and_then(|all| all.last().map(|(step, _)| *step)).unwrap_or(0);
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // As `.checkpoint-00000004.Xy12kQ.part`.
    let step = |name: &str| name.strip_prefix(".checkpoint-")?.split('.').next()?.parse().ok();
    let mut steps = entries.filter_map(|entry| step(&entry.file_name().to_string_lossy()));
    steps.any(|step: u64| step > newest)
}

#[test]
fn a_run_killed_at_any_moment_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ended, mut killed, mut went_on, mut inside) = (false, 0, 0, 0);
    for attempt in 0..60 {
        went_on += usize::from(!list(folder.path()).unwrap().is_empty());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--ignored", "--test-threads=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let path = folder.path().display().to_string();
        child.stdin.take().unwrap().write_all(path.as_bytes()).unwrap();
        // Moments that fall before and between checkpoints; later attempts live longer. Every other
        // one waits on for the next checkpoint and dies inside it.
        let life = 12 + (attempt * 37) % 90 + 4 * attempt;
        std::thread::sleep(Duration::from_millis(life));
        let begun = Instant::now();
        while attempt % 2 == 1
            && !is_writing(folder.path())
            && begun.elapsed() < Duration::from_secs(2)
            && child.try_wait().unwrap().is_none()
        {
            std::hint::spin_loop();
        }
        ended = child.try_wait().unwrap().is_some_and(|status| status.success());
        if ended {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
        inside += usize::from(is_writing(folder.path()));
    }
    assert!(ended, "the run never came to its end");
    assert!(
        killed > 0 && went_on > 0 && inside > 0,
        "{killed} were killed, {inside} inside a checkpoint; {went_on} began from one"
    );
    let found = find(folder.path(), &Device::flex()).unwrap();
    assert!(found.skipped.is_empty(), "{:?}", found.skipped);
    assert_eq!(found.manifest.step, 24);
    assert_eq!(fingerprint(&found.state), fingerprint(&setup().run().trainer.state()));
}
