//! Runs that survive whatever happens to one of their processes.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::told;
use crate::training::{command, state, trained};

/// The last step of the log.
pub(crate) fn logged(folder: &Path) -> usize {
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

/// How a job ended that was hit.
struct Ended {
    told: String,
    /// How long that took.
    waited: Duration,
}

/// Sends a signal to a rank after so many milliseconds of work; how the job then ends. None if it was over before.
fn hit(
    folder: &Path,
    steps: usize,
    (processes, rank): (usize, usize),
    signal: &str,
    after: u64,
) -> Option<Ended> {
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
    let hit = Instant::now();
    let output = job.wait_with_output().unwrap();
    let waited = hit.elapsed();
    assert!(waited < Duration::from_secs(40), "it took {waited:?}");
    assert_ne!(is_hit, output.status.success(), "{}", told(&output));
    is_hit.then(|| Ended { told: told(&output), waited })
}

/// How often a rank is killed on 2 and on 4 processes: a few times, or as `cargo xtask mpi --kills` says.
#[expect(clippy::disallowed_methods, reason = "tests have no other arguments")]
fn kills() -> [(usize, usize); 2] {
    let said = std::env::var("MOVIOLA_TEST_KILLS").ok().and_then(|kills| kills.parse().ok());
    said.map_or([(2, 4), (4, 2)], |kills| [(2, kills), (4, kills)])
}

/// A number below `most` that nobody chose.
fn random(seed: u64, most: u64) -> u64 {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (state ^ (state >> 27)) % most
}

/// Checkpoints that were being written when their run ended.
fn unfinished(folder: &Path) -> usize {
    let entries = fs::read_dir(folder.join("checkpoints")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".part")).count()
}

/// The law: whichever rank is killed at whichever moment, mid-checkpoint included, the run that goes on ends with the
/// bytes of one that never was.
#[test]
fn a_run_whose_ranks_are_killed_ends_with_the_same_bits() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    for (processes, kills) in kills() {
        let (whole, torn) = (at(&format!("whole {processes}")), at(&format!("torn {processes}")));
        let steps = 60_usize.max(30 * kills);
        trained(processes, &whole, steps, &[]);
        let (mut killed, mut amid, mut slowest) = (0, 0, Duration::ZERO);
        for attempt in 0..kills as u64 {
            let rank = random(2 * attempt, processes as u64) as usize;
            let after = random(2 * attempt + 1, 150);
            let hit = hit(&torn, steps, (processes, rank), "-KILL", after);
            let Some(Ended { told, waited }) = hit else { break };
            assert!(told.contains(&format!("rank {rank}")), "rank {rank} is not named: {told}");
            killed += 1;
            amid += usize::from(unfinished(&torn) > 0);
            slowest = slowest.max(waited);
        }
        println!(
            "{processes} processes: {killed} kills, {amid} of them while a checkpoint was being written; the slowest \
             end took {:.1} s",
            slowest.as_secs_f64()
        );
        assert!(killed > kills / 3, "it was killed {killed} times");
        trained(processes, &torn, steps, &[]);
        assert!(state(&torn, steps) == state(&whole, steps), "{processes} processes: other states");
    }
}

/// The loop that docs/training.md gives: what fails is begun again, until all steps are over.
#[test]
fn a_loop_around_a_job_that_is_killed_five_times_ends_with_the_same_bits() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let steps = 240;
    trained(2, &at("whole"), steps, &[]);
    let torn = at("torn");
    let job = command(2, &torn, steps, &[]);
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_string_lossy());
    let words: Vec<String> =
        std::iter::once(job.get_program()).chain(job.get_args()).map(quoted).collect();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("until {}; do sleep 0.1; done", words.join(" "))]);
    shell.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let mut shell = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let (mut killed, mut before) = (0_u64, 0);
    while shell.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(240), "it does not end");
        if killed < 5 && logged(&torn) > before {
            sleep(Duration::from_millis(random(killed, 60)));
            let folder = torn.to_str().unwrap();
            let pattern = format!("moviola train .*{folder}");
            let pids = Command::new("pgrep").args(["-f", &pattern]).output().unwrap();
            let text = String::from_utf8_lossy(&pids.stdout).into_owned();
            let own = |pid: &&str| is_moviola(pid);
            let ranks: Vec<&str> = text.split_whitespace().filter(own).collect();
            if ranks.len() == 2 {
                let rank = ranks[(killed % 2) as usize];
                let is_hit = Command::new("kill").args(["-KILL", rank]).status().unwrap().success();
                killed += u64::from(is_hit);
                // The next one is hit when it has come further than this.
                sleep(Duration::from_millis(300));
                before = logged(&torn);
            }
        }
        sleep(Duration::from_millis(5));
    }
    assert_eq!(killed, 5);
    assert!(state(&torn, steps) == state(&at("whole"), steps), "the loop ends with another state");
}

/// Whether a process is one of ours, not the launcher or the shell around it.
fn is_moviola(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "moviola")
}

/// A signal that one rank gets, or that the launcher hands on to all, ends the run after one step with a checkpoint.
#[test]
fn a_signal_before_the_time_is_up_is_agreed_on() {
    let temporary = tempfile::tempdir().unwrap();
    for (name, hits_launcher) in [("rank", false), ("launcher", true)] {
        let folder = temporary.path().join(name);
        let mut job = command(2, &folder, 4000, &[]);
        let job = job.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while logged(&folder) < 2 && begun.elapsed() < Duration::from_secs(20) {
            sleep(Duration::from_millis(10));
        }
        let pid = if hits_launcher { job.id().to_string() } else { ranks(&job)[1].clone() };
        assert!(Command::new("kill").args(["-USR1", &pid]).status().unwrap().success());
        let output = job.wait_with_output().unwrap();
        let (text, step) = (told(&output), logged(&folder));
        assert!(begun.elapsed() < Duration::from_secs(40), "{name}: it took {:?}", begun.elapsed());
        assert!(text.contains(&format!("stopped after step {step};")), "{name}: {text}");
        assert!(!state(&folder, step).is_empty(), "{name}");
    }
}

/// Where `cargo xtask hosts` joins two hosts by a link: a training whose link is cut ends on both, and goes on to the
/// bits of one that was never cut.
#[test]
#[ignore = "it wants two hosts, which `cargo xtask hosts` makes"]
#[expect(clippy::disallowed_methods, reason = "tests have no other arguments")]
fn a_training_whose_link_is_cut_goes_on_to_the_same_bits() {
    let cutter = std::env::var("MOVIOLA_TEST_CUT").expect("`cargo xtask hosts` makes a link");
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let steps = 400;
    trained(2, &at("whole"), steps, &[]);
    let torn = at("torn");
    let mut job = command(2, &torn, steps, &[]);
    let job = job.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while logged(&torn) < 8 && begun.elapsed() < Duration::from_secs(30) {
        sleep(Duration::from_millis(5));
    }
    assert!(Command::new(&cutter).arg("down").status().unwrap().success());
    let cut = Instant::now();
    let output = job.wait_with_output().unwrap();
    let waited = cut.elapsed();
    assert!(Command::new(&cutter).arg("mend").status().unwrap().success());
    assert!(waited < Duration::from_secs(60), "it took {waited:?}");
    assert!(!output.status.success(), "{}", told(&output));
    crate::named_across_a_cut_link(&told(&output));
    let folder = torn.to_str().unwrap();
    let left =
        || Command::new("pgrep").args(["-f", &format!("train .*{folder}")]).output().unwrap();
    while !left().stdout.is_empty() {
        assert!(cut.elapsed() < Duration::from_secs(90), "orphans: {}", told(&output));
        sleep(Duration::from_millis(200));
    }
    trained(2, &torn, steps, &[]);
    assert!(state(&torn, steps) == state(&at("whole"), steps), "it went on apart");
}

#[test]
fn a_stopped_rank_is_named_and_a_signal_to_one_is_agreed_on() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let told = hit(&at("stopped"), 4000, (2, 1), "-STOP", 30);
    let told = told.expect("it goes on for long").told;
    assert!(told.contains("rank 1 did not come"), "{told}");
    let told = hit(&at("signalled"), 4000, (2, 1), "-TERM", 30);
    let told = told.expect("it goes on for long").told;
    let step = logged(&at("signalled"));
    assert!(told.contains(&format!("stopped after step {step};")), "{told}");
    assert!(!state(&at("signalled"), step).is_empty());
}
