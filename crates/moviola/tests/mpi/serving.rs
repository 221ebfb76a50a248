//! A server whose ranks are processes: the clips of one process, waiting that costs nothing, and every way to its end.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::served::Served;
use crate::subjects;
use crate::{MOVIOLA, golden, launcher, moviola, told};

/// Steps of a clip that takes minutes, a hundredth of which is soon done.
const LONG: usize = 20_000;

/// How long an end may take that nobody waits in vain for.
const SOON: Duration = Duration::from_secs(20);

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The arguments of a server with its jobs in a folder.
fn words(folder: &Path, more: &[&str]) -> Vec<String> {
    let (jobs, model) = (text(&folder.join("jobs")), golden("wan-tiny"));
    let words = ["serve", "--listen", "127.0.0.1:0", "--jobs", &jobs, "--model", &model];
    owned(&[&words[..], &["--threads", "1"], more].concat())
}

/// A server by so many processes.
fn serve(processes: usize, folder: &Path, more: &[&str]) -> Served {
    let words = words(folder, more);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Served::start(moviola(processes, &words), |child| Box::new(child.stdout.take().unwrap()))
}

/// Two processes that are given arguments of their own.
fn apart(first: &[String], second: &[String]) -> Command {
    let mut command = Command::new(launcher());
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.args(["--oversubscribe", "--bind-to", "none", "-n", "1", MOVIOLA]).args(first);
    command.args([":", "-n", "1", MOVIOLA]).args(second);
    command
}

/// The processes of a server, in the order of their ranks.
fn ranks(served: &Served) -> Vec<String> {
    let parent = served.child.id().to_string();
    let found = Command::new("pgrep").args(["-P", &parent, "moviola"]).output().unwrap();
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    let rank = |pid: &str| {
        let all = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let all = String::from_utf8_lossy(&all).into_owned();
        let own = all.split('\0').find_map(|own| own.strip_prefix("OMPI_COMM_WORLD_RANK="));
        (own.unwrap().parse::<usize>().unwrap(), pid.to_owned())
    };
    let mut all: Vec<(usize, String)> = found.split_whitespace().map(rank).collect();
    all.sort();
    all.into_iter().map(|(_, pid)| pid).collect()
}

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success(), "{pid} is gone");
}

/// How a server ended that was told to, or hit: whether that is a success, and what it said. No process of it is left.
fn end(mut served: Served, pids: &[String]) -> (bool, String) {
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = served.child.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < SOON, "it does not end");
        sleep(Duration::from_millis(20));
    };
    let is_left = |pid: &String| Path::new("/proc").join(pid).exists();
    while pids.iter().any(is_left) {
        assert!(begun.elapsed() < 2 * SOON, "orphans");
        sleep(Duration::from_millis(20));
    }
    let mut said = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status.success(), said)
}

/// Asks for a clip; `more` is laid over what is usual.
fn create(served: &Served, more: Value) -> String {
    let mut body = json!({
        "prompt": "a fox", "size": "32x32", "num_frames": 5, "num_inference_steps": 2, "seed": 7,
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let job = served.json("POST", "/v1/videos", Some(&body));
    job["id"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned()
}

/// Asks for a clip that takes minutes, and waits until it is being made.
fn create_long(served: &Served) -> String {
    let long = create(served, json!({ "num_inference_steps": LONG }));
    served.until(&long, |job| job["progress"].as_u64() > Some(0));
    long
}

fn delete(served: &Served, id: &str) {
    assert_eq!(served.ask("DELETE", &format!("/v1/videos/{id}"), None).0, 200);
}

fn failure(served: &Served, id: &str) -> String {
    let begun = Instant::now();
    loop {
        let job = served.json("GET", &format!("/v1/videos/{id}"), None);
        if job["status"] == "failed" {
            return job["error"]["message"].as_str().unwrap().to_owned();
        }
        assert_ne!(job["status"], "completed", "{job}");
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not fail: {job}");
        sleep(Duration::from_millis(20));
    }
}

/// A file as it is sent in JSON.
fn data_url(kind: &str, bytes: &[u8]) -> String {
    format!("data:{kind};base64,{}", STANDARD.encode(bytes))
}

/// A tone of a second, as a WAV file.
fn tone() -> Vec<u8> {
    let (rate, samples) = (16_000_u32, 16_000_u32);
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + 2 * samples).to_le_bytes());
    wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    wav.extend(rate.to_le_bytes());
    wav.extend((2 * rate).to_le_bytes());
    wav.extend(b"\x02\0\x10\0data");
    wav.extend((2 * samples).to_le_bytes());
    let value = |at: u32| (8000.0 * (0.17 * f64::from(at)).sin()) as i16;
    wav.extend((0..samples).flat_map(|at| value(at).to_le_bytes()));
    wav
}

/// What is asked of both kinds of server, by what it is about.
fn asked(clip: Option<&[u8]>) -> Vec<(&'static str, Value)> {
    let picture = fs::read(golden("pictures/photo.png")).unwrap();
    let picture = data_url("image/png", &picture);
    let sized = json!({
        "model": "all", "size": "64x64", "num_frames": 9, "guidance_scale": 1,
    });
    let with = |key: &str, value: String| {
        let mut own = sized.clone();
        own[key] = value.into();
        own
    };
    let mut all = vec![
        ("a text", json!({})),
        ("a LoRA", json!({ "lora": { "name": "style", "scale": 0.5 } })),
        ("a text after a LoRA", json!({ "prompt": "an owl" })),
        ("a picture", with("input_reference", picture)),
        ("a sound", with("audio", data_url("audio/wav", &tone()))),
    ];
    if let Some(clip) = clip {
        let mut own = with("video_prefix", data_url("video/mp4", clip));
        own["num_frames"] = 17.into();
        all.push(("a clip", own));
    }
    all
}

/// A clip of nine frames of 64x64, for those who can read one.
fn given_clip(folder: &Path) -> Option<Vec<u8>> {
    let path = folder.join("given.mp4");
    let words = "-v error -f lavfi -i testsrc=size=64x64:rate=24 -frames:v 9 -pix_fmt yuv420p";
    let made = Command::new("ffmpeg").args(words.split(' ')).arg(&path).status();
    match made.is_ok_and(|made| made.success()) {
        true => Some(fs::read(path).unwrap()),
        false => {
            eprintln!("clips are not sent: there is no ffmpeg");
            None
        }
    }
}

/// The law: whatever is asked, with pictures, sounds, clips and LoRAs, two processes make the bytes of one. What is given
/// comes to the second process without the folder of jobs, and does not stay there.
#[test]
fn processes_serve_the_clips_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("loras")).unwrap();
    subjects::lora(&path("loras/style.safetensors"), 1.0);
    let clip = given_clip(folder.path());
    let (loras, all) = (text(&path("loras")), format!("all={}", golden("ltx2-tiny")));
    let more = ["--model", &all, "--loras", &loras];
    let one = serve(1, &path("one"), &more);
    let two = serve(2, &path("two"), &[&more[..], &["--ulysses", "2"]].concat());
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for (name, body) in asked(clip.as_deref()) {
        let want = one.clip(&create(&one, body.clone()));
        let got = two.clip(&create(&two, body));
        assert!(got == want, "{name}: two processes make another clip");
        assert!(!seen.contains(&got), "{name} changes nothing");
        seen.push(got);
    }
    let pids = ranks(&two);
    assert_eq!(pids.len(), 2);
    let opened = |pid: &str| -> Vec<PathBuf> {
        let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        all.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
    };
    let jobs = path("two");
    let knows = |pid: &str| opened(pid).iter().any(|file| file.starts_with(&jobs));
    assert!(knows(&pids[0]) && !knows(&pids[1]), "{:?}", opened(&pids[1]));
    let begins = format!(".moviola-given.{}.", pids[1]);
    let temporary = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let left: Vec<_> = temporary
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&begins))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Jobs that are alike share a run of two processes, to the bit.
#[test]
fn processes_share_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let served = serve(2, folder.path(), &["--cfg", "2"]);
    let ask = |seed: u64| create(&served, json!({ "seed": seed, "num_inference_steps": 3 }));
    let alone: Vec<Vec<u8>> = (0..3).map(|seed| served.clip(&ask(seed))).collect();
    let busy = create_long(&served);
    let together: Vec<String> = (0..3).map(ask).collect();
    delete(&served, &busy);
    for (id, want) in together.iter().zip(&alone) {
        assert!(served.clip(id) == *want, "it is another beside others");
    }
    let metrics = String::from_utf8(served.ask("GET", "/metrics", None).1).unwrap();
    assert!(metrics.contains("moviola_runs_total 5\n"), "they shared no run: {metrics}");
}

/// The share of a core that a process takes over some time.
fn load(pid: &str, time: Duration) -> f64 {
    let ticks = || -> f64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = rest.split(' ').collect();
        fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
    };
    let before = ticks();
    sleep(time);
    // A tick is a hundredth of a second.
    (ticks() - before) / 100.0 / time.as_secs_f64()
}

/// How long the next job waits for one that is deleted to be given up.
fn given_up(served: &Served, ids: &[String], want: &[u8]) -> Duration {
    let begun = Instant::now();
    ids.iter().for_each(|id| delete(served, id));
    assert!(served.clip(&create(served, json!({}))) == want, "it is another after that");
    begun.elapsed()
}

/// Processes that had nothing to do for ten times as long as one waits for another make the next job, and waiting costs
/// them next to nothing. A job that is given up ends on both.
#[test]
fn processes_wait_for_jobs_and_give_them_up_together() {
    let folder = tempfile::tempdir().unwrap();
    let served = serve(2, folder.path(), &["--ulysses", "2", "--timeout", "1"]);
    let want = served.clip(&create(&served, json!({})));
    let begun = Instant::now();
    sleep(Duration::from_secs(2));
    for pid in ranks(&served) {
        let load = load(&pid, Duration::from_secs(2));
        assert!(load < 0.2, "waiting takes {load} of a core");
    }
    sleep(Duration::from_secs(10).saturating_sub(begun.elapsed()));
    assert!(served.clip(&create(&served, json!({}))) == want, "it is another clip");
    let long = create_long(&served);
    let waited = given_up(&served, &[long], &want);
    assert!(waited < Duration::from_secs(8), "the next job waited {waited:?}");
}

/// Replicas, each of which makes a job of its own in a run that they share, give it up together too.
#[test]
fn replicas_of_processes_give_up_together() {
    let folder = tempfile::tempdir().unwrap();
    let served = serve(2, folder.path(), &["--data", "2", "--timeout", "60"]);
    let want = served.clip(&create(&served, json!({})));
    let blocking = create_long(&served);
    let long = || create(&served, json!({ "num_inference_steps": LONG }));
    let shared = [long(), long()];
    delete(&served, &blocking);
    for id in &shared {
        served.until(id, |job| job["status"] == "in_progress");
    }
    let waited = given_up(&served, &shared, &want);
    assert!(waited < Duration::from_secs(8), "the next job waited {waited:?}");
}

/// A signal to any process, or one that the launcher hands on, ends all of them as it ends one: what ran and what waited
/// is there at the next start.
#[test]
fn a_signal_ends_all_processes_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let want = {
        let one = serve(1, &folder.path().join("one"), &[]);
        one.clip(&create(&one, json!({})))
    };
    for (at, (name, to)) in
        [("-TERM", 0), ("-INT", 0), ("-TERM", 1), ("-USR1", 2)].into_iter().enumerate()
    {
        let jobs = folder.path().join(at.to_string());
        let served = serve(2, &jobs, &["--ulysses", "2", "--timeout", "10"]);
        let pids = ranks(&served);
        let (long, short) = match at % 2 {
            0 => (Some(create_long(&served)), Some(create(&served, json!({})))),
            _ => (None, None),
        };
        let pid = pids.get(to).cloned().unwrap_or_else(|| served.child.id().to_string());
        signal(name, &pid);
        let (is_well, said) = end(served, &pids);
        assert!(is_well, "{name} to {to}: {said}");
        let Some((long, short)) = long.zip(short) else { continue };
        let again = serve(1, &jobs, &[]);
        delete(&again, &long);
        assert!(again.clip(&short) == want, "{name} to {to}");
    }
}

/// A process that is killed, or that is missed, ends the server with a code that is not zero, and so does a launcher that
/// is told to end; nobody is left, and the jobs are there at the next start.
#[test]
fn a_lost_process_ends_the_server_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (name, to, is_running) in [
        ("-KILL", 1, true),
        ("-KILL", 1, false),
        ("-STOP", 1, true),
        ("-STOP", 1, false),
        ("-TERM", 2, true),
    ] {
        let jobs = folder.path().join(format!("{name} {is_running}"));
        let served = serve(2, &jobs, &["--ulysses", "2", "--timeout", "2"]);
        let pids = ranks(&served);
        let long = is_running.then(|| create_long(&served));
        let pid = pids.get(to).cloned().unwrap_or_else(|| served.child.id().to_string());
        signal(name, &pid);
        // Only who speaks to it misses it.
        let long = long.or_else(|| {
            let body = json!({ "num_inference_steps": LONG });
            (name == "-STOP").then(|| create(&served, body))
        });
        let (is_well, said) = end(served, &pids);
        assert!(!is_well, "{name} {is_running}: {said}");
        if name == "-STOP" {
            assert!(said.contains("rank 1 did not come"), "{said}");
            assert!(said.contains("begins again when the server is started again"), "{said}");
        }
        let again = serve(1, &jobs, &[]);
        if let Some(long) = long {
            again.until(&long, |job| job["status"] == "in_progress");
            delete(&again, &long);
        }
    }
}

/// What one process cannot do fails alone, is told without its paths, and leaves both for the next job.
#[test]
fn a_run_that_fails_on_one_leaves_the_processes_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (rank, strength) in [1.0, 2.0].into_iter().enumerate() {
        fs::create_dir(path(&rank.to_string())).unwrap();
        subjects::lora(&path(&format!("{rank}/other.safetensors")), strength);
        subjects::lora(&path(&format!("{rank}/same.safetensors")), 1.0);
    }
    subjects::lora(&path("0/only.safetensors"), 1.0);
    let own = |rank: usize| {
        let loras = text(&path(&rank.to_string()));
        words(&path(&format!("jobs {rank}")), &["--ulysses", "2", "--loras", &loras])
    };
    let command = apart(&own(0), &own(1));
    let served = Served::start(command, |child| Box::new(child.stdout.take().unwrap()));
    let with = |name: &str| json!({ "lora": name });
    let same = served.clip(&create(&served, with("same")));
    for (name, reason) in [("only", "there is no `only`"), ("other", "another file")] {
        let told = failure(&served, &create(&served, with(name)));
        assert!(told.contains("rank 1 failed") && told.contains(reason), "{told}");
        assert!(!told.contains(&*text(folder.path())), "{told}");
    }
    assert!(served.clip(&create(&served, with("same"))) == same);
    assert!(!path("jobs 1").exists(), "the second process has a folder of jobs");
    let pids = ranks(&served);
    signal("-TERM", &pids[0]);
    assert!(end(served, &pids).0);
}

/// Processes that were given other models or arguments refuse to serve, and say what differs.
#[test]
fn processes_that_serve_other_things_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let own = words(folder.path(), &["--ulysses", "2"]);
    let other = |more: &[&str]| -> Vec<String> {
        let mut words = own.clone();
        words.extend(owned(more));
        words
    };
    let model = format!("wan-tiny={}", golden("wan-tiny-i2v"));
    let mut swapped = own.clone();
    let at = swapped.iter().position(|word| *word == golden("wan-tiny")).unwrap();
    swapped[at] = model;
    for (second, reason) in
        [(other(&["--dtype", "bf16"]), "the arguments"), (swapped, "the files of model `wan-tiny`")]
    {
        let output = apart(&own, &second).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{}", told(&output));
        assert!(
            told(&output).contains(&format!("{reason}: this process has")),
            "{}",
            told(&output)
        );
    }
}
