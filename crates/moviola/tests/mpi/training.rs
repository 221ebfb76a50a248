//! Training by processes: the bits of threads, and a run that survives whatever happens to one of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{moviola, told};

/// The arguments of a run that takes a step in milliseconds.
fn arguments(folder: &Path, steps: usize) -> Vec<String> {
    let recipe =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes/quickstart.yaml"));
    let sets = [
        "models.student.new={family: duet, video_channels: 384, text_width: 64, heads: 2, head_width: 8, depth: 2}",
        "data.batch=4",
        "data.source.clips=40",
        "models.student.rate.warmup=2",
        "checkpoint={every: 3, keep_last: 2}",
    ];
    let mut all = vec!["train".to_owned(), recipe.to_str().unwrap().to_owned()];
    all.extend(["--run".to_owned(), folder.to_str().unwrap().to_owned()]);
    all.extend(["--threads".to_owned(), "1".to_owned(), "--timeout".to_owned(), "5".to_owned()]);
    all.extend(["--set".to_owned(), format!("loop.steps={steps}")]);
    all.extend(sets.iter().flat_map(|set| ["--set".to_owned(), (*set).to_owned()]));
    all
}

/// Trains by so many processes, of so many ranks each if it is one.
fn command(processes: usize, folder: &Path, steps: usize, more: &[&str]) -> Command {
    let all = arguments(folder, steps);
    let all: Vec<&str> = all.iter().map(String::as_str).chain(more.iter().copied()).collect();
    moviola(processes, &all)
}

fn trained(processes: usize, folder: &Path, steps: usize, more: &[&str]) {
    let output = command(processes, folder, steps, more).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
}

fn state(folder: &Path, step: usize) -> Vec<u8> {
    fs::read(folder.join(format!("checkpoints/checkpoint-{step:08}/state.safetensors"))).unwrap()
}

/// The last step of the log.
fn logged(folder: &Path) -> usize {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap_or_default();
    text.lines().count()
}

/// The processes of the ranks.
fn ranks(launcher: &Child) -> Vec<String> {
    let parent = launcher.id().to_string();
    let found = Command::new("pgrep").args(["-P", &parent, "moviola"]).output().unwrap();
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Sends a signal to a rank after so many milliseconds of work; what the job then says. None if it was over before.
fn hit(
    folder: &Path,
    steps: usize,
    (processes, rank): (usize, usize),
    signal: &str,
    after: u64,
) -> Option<String> {
    let mut command = command(processes, folder, steps, &[]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let (before, begun) = (logged(folder), Instant::now());
    let mut job = command.spawn().unwrap();
    while logged(folder) <= before && begun.elapsed() < Duration::from_secs(20) {
        if job.try_wait().unwrap().is_some() {
            break;
        }
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(after));
    let pids = ranks(&job);
    let is_hit = pids.len() == processes
        && Command::new("kill").args([signal, &pids[rank]]).status().unwrap().success();
    let output = job.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
    assert_ne!(is_hit, output.status.success(), "{}", told(&output));
    is_hit.then(|| told(&output))
}

#[test]
fn processes_train_as_threads_do_and_go_on_as_threads() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    trained(1, &at("threads"), 9, &["--ranks", "2"]);
    trained(2, &at("processes"), 9, &[]);
    assert!(
        state(&at("threads"), 9) == state(&at("processes"), 9),
        "processes differ from threads"
    );
    fs::remove_dir_all(at("processes").join("checkpoints/checkpoint-00000009")).unwrap();
    trained(1, &at("processes"), 9, &["--ranks", "2"]);
    assert!(state(&at("threads"), 9) == state(&at("processes"), 9), "it went on apart");
    trained(4, &at("processes"), 12, &[]);
    trained(1, &at("processes"), 15, &[]);
}

/// The law: whichever rank is killed at whichever moment, mid-checkpoint included, the run that goes on ends with the
/// bytes of one that never was.
#[test]
fn a_run_whose_ranks_are_killed_ends_with_the_same_bits() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    for (processes, kills) in [(2, 4), (4, 2)] {
        let (whole, torn) = (at(&format!("whole {processes}")), at(&format!("torn {processes}")));
        trained(processes, &whole, 60, &[]);
        let mut killed = 0;
        for attempt in 0..kills {
            let (rank, after) = (attempt % processes, 3 + 11 * attempt as u64);
            let Some(told) = hit(&torn, 60, (processes, rank), "-KILL", after) else { break };
            assert!(told.contains(&format!("rank {rank}")), "{told}");
            killed += 1;
        }
        assert!(killed > 1, "it was killed {killed} times");
        trained(processes, &torn, 60, &[]);
        assert!(state(&torn, 60) == state(&whole, 60), "{processes} processes: the states differ");
    }
}

#[test]
fn a_stopped_rank_is_named_and_a_signal_to_one_is_agreed_on() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let told = hit(&at("stopped"), 4000, (2, 1), "-STOP", 30).expect("it goes on for long");
    assert!(told.contains("rank 1 did not come"), "{told}");
    let told = hit(&at("signalled"), 4000, (2, 1), "-TERM", 30).expect("it goes on for long");
    let step = logged(&at("signalled"));
    assert!(told.contains(&format!("stopped after step {step};")), "{told}");
    assert!(!state(&at("signalled"), step).is_empty());
}
