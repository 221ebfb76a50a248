//! Ranks as processes that `mpirun` starts: the latents of one process, and an end when one of them is lost.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod requests;
#[path = "../served/mod.rs"]
mod served;
mod serving;
#[path = "../subjects/mod.rs"]
mod subjects;
mod survival;
mod training;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use safetensors::SafeTensors;

const MOVIOLA: &str = env!("CARGO_BIN_EXE_moviola");

/// `moviola` as so many processes; as it is for one.
fn moviola(processes: usize, arguments: &[&str]) -> Command {
    let mut command = match processes {
        1 => Command::new(MOVIOLA),
        _ => {
            let mut command = Command::new(launcher());
            command.args(["-n", &processes.to_string(), "--oversubscribe", "--bind-to", "none"]);
            command.arg(MOVIOLA);
            command
        }
    };
    // Tests may run as root, in a container, where Open MPI wants to hear twice that this is meant.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.args(arguments);
    command
}

/// What starts processes: `mpirun`, or what `cargo xtask hosts` gives to start them on two hosts.
#[expect(clippy::disallowed_methods, reason = "tests have no other arguments")]
fn launcher() -> String {
    std::env::var("MOVIOLA_TEST_LAUNCHER").unwrap_or_else(|_| "mpirun".to_owned())
}

fn golden(name: &str) -> String {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens")).join(name);
    path.to_str().unwrap().to_owned()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The latents of a request by so many processes.
fn latents(model: &str, processes: usize, layout: &[&str]) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, clip, file) = (golden(model), path("clip.png"), path("latents.safetensors"));
    let words = ["generate", "--model", &model, "--prompt", "a fox", "--prompt", "a red cat"];
    let sizes = ["--height", "32", "--width", "32", "--steps", "3", "--seed", "5"];
    let files = ["--guidance", "3", "--output", &clip, "--save-latents", &file, "--timeout", "60"];
    let frames: &[&str] = if model.contains("wan") { &["--frames", "5"] } else { &[] };
    let all = [&words[..], &sizes, &files, frames, layout].concat();
    let output = moviola(processes, &all).output().unwrap();
    assert!(output.status.success(), "{processes} processes, {layout:?}: {}", told(&output));
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data = tensors.tensor("latents").unwrap().data().to_vec();
    data.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// Layouts by their number of processes; whether sums have the order of one.
const LAYOUTS: [(usize, &[&str], bool); 8] = [
    (2, &[], true),
    (2, &["--data", "2"], true),
    (2, &["--ulysses", "2"], true),
    (2, &["--pipefusion", "2", "--patches", "1"], true),
    (4, &["--cfg", "2", "--ulysses", "2", "--vae-ranks", "2"], true),
    (2, &["--ring", "2"], false),
    (2, &["--tensor", "2"], false),
    (4, &["--cfg", "2", "--ring", "2"], false),
];

#[test]
fn processes_make_the_latents_of_one() {
    for model in ["wan-tiny", "pixart-tiny"] {
        let want = latents(model, 1, &[]);
        let square = want.iter().map(|x| x * x).sum::<f32>();
        for (processes, layout, to_the_bit) in LAYOUTS {
            if layout.contains(&"--pipefusion") && model == "wan-tiny" {
                // It has one block.
                continue;
            }
            let got = latents(model, processes, layout);
            assert_eq!(got.len(), want.len());
            let off = got.iter().zip(&want).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
            match to_the_bit {
                true => assert!(got == want, "{model} {layout:?}"),
                false => assert!((off / square).sqrt() <= 1e-5, "{model} {layout:?}: {off}"),
            }
        }
    }
}

/// A bad argument is told once, and nothing is written.
#[test]
fn a_refusal_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let (model, clip) = (golden("wan-tiny"), folder.path().join("clip.gif"));
    let words = ["generate", "--model", &model, "--prompt", "x", "--output"];
    let more = [clip.to_str().unwrap(), "--ulysses", "3"];
    let output = moviola(3, &[&words[..], &more].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert_eq!(told(&output).matches("error: --ulysses: 2 heads").count(), 1, "{}", told(&output));
    let output = moviola(2, &["inspect", &model]).output().unwrap();
    assert!(told(&output).contains("runs in one process"), "{}", told(&output));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The processes of the ranks, once there are two.
fn ranks_of(launcher: &Child) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let parent = launcher.id().to_string();
        let found = Command::new("pgrep").args(["-P", &parent, "moviola"]).output().unwrap();
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        let all: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if all.len() == 2 {
            return all;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "no two ranks: {text}");
        sleep(Duration::from_millis(50));
    }
}

/// A job that goes on until something happens to it.
struct Job {
    launcher: Child,
    folder: tempfile::TempDir,
}

impl Job {
    fn start(layout: &[&str]) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let (model, clip) = (golden("wan-tiny"), folder.path().join("clip.gif"));
        let words =
            ["generate", "--model", &model, "--prompt", "x", "--steps", "1000", "--count", "50"];
        let sizes = ["--height", "64", "--width", "64", "--frames", "33", "--timeout", "4"];
        let more = ["--output", clip.to_str().unwrap()];
        let mut command = moviola(2, &[&words[..], &sizes, &more, layout].concat());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Job { launcher: command.spawn().unwrap(), folder }
    }

    /// Sends a signal to the second rank in the middle of its work; what the job then says.
    fn hit(self, signal: &str) -> String {
        let ranks = ranks_of(&self.launcher);
        sleep(Duration::from_secs(3));
        let sent = Command::new("kill").args([signal, &ranks[1]]).status().unwrap();
        assert!(sent.success(), "rank 1 was gone before");
        let begun = Instant::now();
        let output = self.launcher.wait_with_output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "it took {:?}", begun.elapsed());
        assert!(!output.status.success());
        let is_left = |pid: &String| Path::new("/proc").join(pid).exists();
        while ranks.iter().any(is_left) {
            assert!(begun.elapsed() < Duration::from_secs(40), "orphans: {}", told(&output));
            sleep(Duration::from_millis(100));
        }
        let files: Vec<_> = fs::read_dir(self.folder.path()).unwrap().collect();
        assert!(files.is_empty(), "half-written: {files:?}");
        told(&output)
    }
}

/// A rank that is stopped while it decodes is missed within the time that ranks wait for each other: by the first one, which
/// waits for its frames, and by one that has done its part and waits for the end alone.
#[test]
fn a_rank_that_is_stopped_while_it_decodes_is_named() {
    let cases: [(&[&str], usize, &str); 2] = [
        (
            &["--ulysses", "2"],
            0,
            "rank 1 is done and waits for the others, but rank 0 did not come",
        ),
        (&["--data", "2", "--count", "2"], 1, "rank 0 waited"),
    ];
    for (layout, stopped, want) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (model, clip) = (golden("wan-tiny"), folder.path().join("clip.gif"));
        let words = ["generate", "--model", &model, "--prompt", "x", "--steps", "1", "--seed", "1"];
        let sizes = ["--height", "512", "--width", "512", "--frames", "25", "--timeout", "4"];
        let more = ["--threads", "1", "--output", clip.to_str().unwrap()];
        let mut command = moviola(2, &[&words[..], &sizes, &more, layout].concat());
        let mut launcher = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(launcher.stderr.take().unwrap());
        let (mut told, ranks) = (String::new(), ranks_of(&launcher));
        while !told.lines().any(|line| line.contains("decode")) {
            assert!(said.read_line(&mut told).unwrap() > 0, "it was over before: {told}");
        }
        // Both are at it.
        sleep(Duration::from_secs(1));
        let begun = Instant::now();
        assert!(Command::new("kill").args(["-STOP", &ranks[stopped]]).status().unwrap().success());
        said.read_to_string(&mut told).unwrap();
        let status = launcher.wait().unwrap();
        assert!(!status.success(), "{layout:?}: {told}");
        // The first may have frames of its own to decode before it looks for those of others.
        assert!(begun.elapsed() < Duration::from_secs(90), "{layout:?}: {:?}", begun.elapsed());
        let lost = format!("rank {stopped} did not come: it was busy with decoding");
        assert!(told.contains(want) && told.contains(&lost), "{layout:?}: {told}");
        assert!(told.contains("no sign of life"), "{layout:?}: {told}");
        while ranks.iter().any(|pid| Path::new("/proc").join(pid).exists()) {
            assert!(begun.elapsed() < Duration::from_secs(120), "orphans: {told}");
            sleep(Duration::from_millis(100));
        }
        assert!(!clip.exists(), "{layout:?}: half a clip");
    }
}

/// What is said where a link is cut: our watchdog names the rank and its call, unless the library or the launcher is first,
/// who name the other host or its address. Which of them is first is a race, since the kernel says at once that the network
/// is gone, and silence is an error after `--timeout` only.
#[track_caller]
fn named_across_a_cut_link(told: &str) {
    let watchdog = told.contains("rank 1 did not come") || told.contains("rank 0 did not come");
    let launcher = ["moviola-left", "moviola-right", "10.213.7.1", "10.213.7.2"];
    let speaks =
        ["Network is unreachable", "FATAL", "lost connection", "lost communication", "ORTE"];
    let named = launcher.iter().any(|host| told.contains(host))
        && speaks.iter().any(|words| told.contains(words));
    assert!(watchdog || named, "nobody is named: {told}");
}

/// Where two hosts are joined by a link, and it is cut, both ends give up.
#[test]
#[ignore = "it wants two hosts, which `cargo xtask hosts` makes"]
#[expect(clippy::disallowed_methods, reason = "tests have no other arguments")]
fn a_cut_link_ends_the_job() {
    let cutter = std::env::var("MOVIOLA_TEST_CUT").expect("`cargo xtask hosts` makes a link");
    cut_under_a_job(&cutter, "down");
}

/// Where nothing more comes over a link and nobody is told, as of a cable that is pulled behind a switch, nobody but our
/// watchdog can be first.
#[test]
#[ignore = "it wants two hosts, which `cargo xtask hosts` makes"]
#[expect(clippy::disallowed_methods, reason = "tests have no other arguments")]
fn a_silent_link_ends_the_job() {
    let cutter = std::env::var("MOVIOLA_TEST_CUT").expect("`cargo xtask hosts` makes a link");
    let told = cut_under_a_job(&cutter, "silence");
    let named = told.contains("did not come") && told.contains("group `");
    assert!(named, "no rank and call are named: {told}");
}

/// Cuts the link under a job, holds it to its end, mends the link and returns what was said.
fn cut_under_a_job(cutter: &str, way: &str) -> String {
    let job = Job::start(&["--ulysses", "2"]);
    sleep(Duration::from_secs(6));
    assert!(Command::new(cutter).arg(way).status().unwrap().success());
    let begun = Instant::now();
    let output = job.launcher.wait_with_output().unwrap();
    let waited = begun.elapsed();
    assert!(Command::new(cutter).arg("mend").status().unwrap().success());
    assert!(waited < Duration::from_secs(60), "it took {waited:?}");
    assert!(!output.status.success(), "{}", told(&output));
    named_across_a_cut_link(&told(&output));
    let left = || {
        Command::new("pgrep").args(["-f", "steps 1000 --count 50.*--ulysses 2"]).output().unwrap()
    };
    while !left().stdout.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(90), "orphans: {}", told(&output));
        sleep(Duration::from_millis(200));
    }
    assert_eq!(fs::read_dir(job.folder.path()).unwrap().count(), 0);
    told(&output)
}

#[test]
fn a_killed_rank_ends_the_job() {
    let told = Job::start(&["--ulysses", "2"]).hit("-KILL");
    assert!(told.contains("rank 1"), "{told}");
}

#[test]
fn a_stopped_rank_is_named_with_its_call() {
    let told = Job::start(&["--ulysses", "2"]).hit("-STOP");
    assert!(told.contains("rank 1 did not come") && told.contains("group `"), "{told}");
}
