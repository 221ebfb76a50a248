//! `moviola train`, `quickstart`, `export` and `exam`: runs that learn, stop, go on and are used.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::folder::run;

/// A recipe that takes a step in milliseconds.
const SMALL: [&str; 5] = [
    "models.student.new={family: duet, video_channels: 384, text_width: 64, heads: 2, head_width: 8, \
     depth: 2}",
    "data.batch=2",
    "data.source.clips=40",
    "models.student.rate.warmup=2",
    "checkpoint={every: 2, keep_last: 2}",
];

pub(crate) fn recipe(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes").join(name);
    path.to_str().unwrap().to_owned()
}

/// What a command said.
pub(crate) fn words(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn arguments(run: &Path, steps: usize, more: &[&str]) -> Vec<String> {
    let mut all = vec!["train".to_owned(), recipe("quickstart.yaml")];
    all.extend(["--run".to_owned(), run.to_str().unwrap().to_owned()]);
    all.extend(["--set".to_owned(), format!("loop.steps={steps}")]);
    for set in SMALL.iter().chain(more) {
        all.extend(["--set".to_owned(), (*set).to_owned()]);
    }
    all
}

pub(crate) fn train(folder: &Path, steps: usize, more: &[&str]) -> std::process::Output {
    let arguments = arguments(folder, steps, more);
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The state of the last checkpoint, byte by byte.
fn state(folder: &Path, step: usize) -> Vec<u8> {
    fs::read(folder.join(format!("checkpoints/checkpoint-{step:08}/state.safetensors"))).unwrap()
}

/// The step of the newest checkpoint, 0 if there is none.
fn saved(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder.join("checkpoints")).into_iter().flatten().flatten();
    let step = |name: &str| name.strip_prefix("checkpoint-")?.parse().ok();
    let steps = entries.filter_map(|entry| step(&entry.file_name().to_string_lossy()));
    steps.max().unwrap_or(0)
}

/// The last step in the log, if the log has changed since a moment.
fn logged_since(folder: &Path, moment: SystemTime) -> Option<u64> {
    let path = folder.join("metrics.jsonl");
    let changed = fs::metadata(&path).and_then(|log| log.modified()).ok()?;
    let text = fs::read_to_string(&path).ok().filter(|_| changed > moment)?;
    let line: Value = serde_json::from_str(text.lines().last()?).ok()?;
    line["step"].as_u64()
}

/// The log without what depends on the clock.
fn log(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let fields = value.as_object_mut().unwrap();
        fields.retain(|key, _| !key.contains("second") && !key.contains("peak"));
        value
    };
    text.lines().map(line).collect()
}

/// The law: a run that is killed at twenty moments, mid-checkpoint included, ends as one that never
/// was, in every byte of its checkpoint and every loss of its log.
#[test]
fn a_run_that_is_killed_ends_with_the_same_bits() {
    const STEPS: usize = 100;
    let temporary = tempfile::tempdir().unwrap();
    let (whole, torn) = (temporary.path().join("whole"), temporary.path().join("torn"));
    let out = train(&whole, STEPS, &[]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (mut killed, mut went_on, mut ended) = (0, 0, false);
    for attempt in 0..400u64 {
        let (begun, from) = (SystemTime::now(), saved(&torn));
        let mut child = Command::new(env!("CARGO_BIN_EXE_moviola"))
            .args(arguments(&torn, STEPS, &[]))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It lives for some steps and some milliseconds more, which may end in a step or in a
        // checkpoint; once killed often enough, it may end.
        let last = if killed < 20 { from + 1 + attempt % 7 } else { u64::MAX };
        let mut rest = 1 + (attempt * 7) % 23;
        while rest > 0 && !ended {
            std::thread::sleep(Duration::from_millis(1));
            ended = child.try_wait().unwrap().is_some();
            rest -= u64::from(logged_since(&torn, begun).is_some_and(|step| step >= last));
        }
        if ended {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
        went_on += usize::from(from > 0);
    }
    assert!(ended && killed >= 20, "it was killed {killed} times");
    assert!(went_on >= 10, "only {went_on} lives began from a checkpoint");
    assert!(state(&torn, STEPS) == state(&whole, STEPS), "the states differ");
    assert_eq!(log(&torn), log(&whole));
}

#[test]
fn a_run_is_seen_exported_examined_and_generates() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { temporary.path().join(name) };
    let validation =
        "callbacks.validation={every: 2, steps: 1, prompts: [a red circle moves left]}";
    let out = train(&path("run"), 4, &[validation, "data.held_out=4"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let page = fs::read_to_string(path("run").join("report.html")).unwrap();
    assert!(page.contains("held_out/loss") && page.contains("validation/score"));
    for step in [0, 2, 4] {
        assert!(path("run").join(format!("validation/{step:08}/000.gif")).is_file(), "{step}");
    }
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    let export = ["export", &text("run"), "--ema", "--output", &text("model")];
    assert!(run(&export).status.success());
    assert!(!run(&export).status.success(), "nothing is overwritten");
    let exam = ["exam", "--model", &text("model"), "--steps", "1", "--output", &text("exam.json")];
    let out = run(&exam);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let last = String::from_utf8(out.stdout).unwrap();
    assert!(last.trim_end().ends_with("of 96)"), "{last}");
    // A folder that records timesteps is used at them, which shows where they cannot be.
    let index = path("model").join("model_index.json");
    let whole = fs::read_to_string(&index).unwrap();
    let mut recorded: Value = serde_json::from_str(&whole).unwrap();
    recorded["timesteps"] = serde_json::json!([500.0, 1000.0]);
    fs::write(&index, recorded.to_string()).unwrap();
    let model = text("model");
    let prompt = "a red circle moves left";
    let output = text("few.gif");
    let generate =
        ["generate", "--model", &model, "--prompt", prompt, "--overwrite", "--output", &output];
    for (command, more, works) in [
        (&["exam", "--model", &model][..], &[][..], false),
        (&["exam", "--model", &model], &["--steps", "1"], true),
        (&["exam", "--model", &model], &["--timesteps", "1000"], true),
        (&generate, &[], false),
        (&generate, &["--steps", "1"], true),
        (&generate, &["--solver", "scheduler"], true),
    ] {
        let out = run(&[command, more].concat());
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.success(), works, "{command:?} {more:?}: {text}");
        assert!(works || text.contains("fall"), "{text}");
    }
    fs::write(&index, whole).unwrap();
    let generate = [
        "generate",
        "--model",
        &text("model"),
        "--prompt",
        "a red circle moves left",
        "--solver",
        "renoise",
        "--timesteps",
        "1000,500",
        "--output",
        &text("clip.gif"),
    ];
    let out = run(&generate);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(path("clip.gif").is_file());
}

/// A quickstart that is asked for more steps goes on, and all it leaves is of the longer run.
#[test]
fn a_quickstart_ends_with_its_score_and_goes_on() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("shapes");
    let weights = folder.join("model/transformer/diffusion_pytorch_model.safetensors");
    let mut models = Vec::new();
    for (steps, before) in [(2, 0), (4, 2), (4, 4)] {
        let steps_set = format!("loop.steps={steps}");
        let mut arguments = vec!["quickstart", "--run", folder.to_str().unwrap()];
        for set in SMALL.iter().copied().chain([steps_set.as_str()]) {
            arguments.extend(["--set", set]);
        }
        let out = run(&arguments);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).unwrap();
        let summary = fs::read_to_string(folder.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&summary).unwrap();
        let score = &summary["score"];
        let (percent, right) = (score["percent"].as_f64().unwrap(), &score["right"]);
        let last = format!("score {percent:.1} % ({right} of 96)");
        assert_eq!(text.lines().last(), Some(last.as_str()));
        assert_eq!((&summary["steps"], &summary["resumed_after"]), (&steps.into(), &before.into()));
        let page = fs::read_to_string(folder.join("report.html")).unwrap();
        // A newcomer is told what was trained on what, what was withheld, what chance is and why clips are refused.
        for part in [
            "learnt from 40 rendered clips",
            "withheld",
            "Chance:",
            "in all three in 2.1 %",
            "in blue or green or red or yellow moves",
            "Not read",
            "What to do next",
        ] {
            assert!(page.contains(part), "no `{part}` on the page");
        }
        let command = format!("moviola generate --model {}/model --prompt", folder.display());
        assert!(page.contains(&command), "{command} is not on the page");
        assert_eq!(page.matches("per second</").count(), 1, "one curve of the speed");
        plays_alike(&folder);
        models.push(fs::read(&weights).unwrap());
    }
    assert!(models[0] != models[1], "the model is that of the shorter run");
    let foreign = temporary.path().join("foreign/model");
    fs::create_dir_all(&foreign).unwrap();
    fs::write(foreign.join("precious.txt"), "mine").unwrap();
    let out = run(&["quickstart", "--run", foreign.parent().unwrap().to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8(out.stderr).unwrap().contains("is not a model that quickstart made"));
    assert_eq!(fs::read_dir(foreign.parent().unwrap()).unwrap().count(), 1, "nothing is written");
    assert_eq!(fs::read_to_string(foreign.join("precious.txt")).unwrap(), "mine");
    assert!(models[1] == models[2], "a run that is over does not change");
    // What somebody put beside the model is not removed with it.
    fs::write(folder.join("model/notes.txt"), "mine").unwrap();
    let out = run(&["quickstart", "--run", folder.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8(out.stderr).unwrap().contains("notes.txt is in the folder"));
    assert_eq!(fs::read_to_string(folder.join("model/notes.txt")).unwrap(), "mine");
}

/// What the report shows and what `generate` makes play equally fast.
fn plays_alike(folder: &Path) {
    use image::AnimationDecoder;
    let delays = |path: PathBuf| -> Vec<(u32, u32)> {
        let file = std::io::BufReader::new(fs::File::open(path).unwrap());
        let frames = image::codecs::gif::GifDecoder::new(file).unwrap().into_frames();
        frames.map(|frame| frame.unwrap().delay().numer_denom_ms()).collect()
    };
    let text = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let out = run(&[
        "generate",
        "--model",
        &text("model"),
        "--prompt",
        "a red circle moves left",
        "--steps",
        "1",
        "--overwrite",
        "--output",
        &text("own.gif"),
    ]);
    assert!(out.status.success(), "{}", words(&out));
    assert_eq!(delays(folder.join("own.gif")), delays(folder.join("clips/00.gif")));
}

/// Every file and folder below a folder, with its bytes.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        }
        let bytes = path.is_file().then(|| fs::read(&path).unwrap());
        all.insert(path, bytes);
    }
    all
}

#[test]
fn a_dry_run_says_what_is_needed_and_writes_nothing() {
    // Everything that it could write lies in one folder: its own, its home, its temporary files, the
    // recipe, the dataset and the run.
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    fs::create_dir(root.join("run")).unwrap();
    fs::copy(recipe("quickstart.yaml"), root.join("recipe.yaml")).unwrap();
    let before = contents(root);
    let mut command = Command::new(env!("CARGO_BIN_EXE_moviola"));
    command.args(["train", "recipe.yaml", "--run", "run", "--dry-run", "--set", "loop.seed=9"]);
    command.current_dir(root);
    for variable in ["HOME", "HF_HOME", "TMPDIR", "XDG_CACHE_HOME"] {
        command.env(variable, root);
    }
    let out = command.output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && text.contains("seed: 9"), "{text}");
    let parts =
        ["# memory in MiB", "# student", "# average", "# training", "# peak", "# a step of 16"];
    for part in parts.iter().chain(&["recompute never", "operations"]) {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(contents(root), before, "something was written");
    let out = run(&["train", "--schema"]);
    let schema: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(schema["$defs"]["ModelsConfig"]["properties"]["teacher"].is_object());
}

/// The number after `key` in a text.
#[cfg(target_os = "linux")]
fn number_after(text: &str, key: &str) -> f64 {
    let (_, rest) = text.split_once(key).unwrap_or_else(|| panic!("no `{key}` in {text}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_needs_the_memory_that_its_dry_run_said() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    // Large enough for its weights to matter: the program itself takes some 50 MiB.
    let new = "models.student.new={family: duet, video_channels: 384, text_width: 64, heads: 8, \
               head_width: 64, depth: 4}";
    let (recipe, folder) = (recipe("quickstart.yaml"), folder.display().to_string());
    let mut arguments = vec!["train", &recipe, "--run", &folder, "--threads", "2"];
    let optimizer = "models.student.optimizer={kind: adamw}";
    for set in [new, optimizer, "models.student.rate.warmup=0", "loop.steps=2", "data.batch=4"] {
        arguments.extend(["--set", set]);
    }
    let out = run(&arguments);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let measured = number_after(&String::from_utf8(out.stderr).unwrap(), "peak memory: ");
    arguments.push("--dry-run");
    let said = number_after(&String::from_utf8(run(&arguments).stdout).unwrap(), "# peak ");
    let off = said / measured - 1.0;
    assert!(off.abs() < 0.15, "{said} MiB were said and {measured} measured: {off:+.2}");
}

#[test]
fn bad_recipes_end_with_code_2_before_any_work() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    let cases = [
        ("loop.stepz=1", "unknown key `stepz` in `loop`; did you mean `steps`?"),
        ("loop.steps=x", "`loop.steps` is text, but it is a whole number"),
        ("models.teacher={from: x, trainable: true}", "a teacher is frozen"),
        ("models.student.learns={kind: lora, rank: 2, targets: [nothing]}", "matches no layer"),
        ("strategy={name: video_to_video}", "needs the source `ref_latents`"),
        ("data.source={kind: store, path: no-such-store}", "no-such-store"),
        ("loop.clip=-1", "`loop.clip` is -1"),
    ];
    for (set, expected) in cases {
        let out = train(&folder, 2, &[set]);
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{set}: {text}");
        assert!(text.starts_with("error: ") && text.contains(expected), "{set}: {text}");
        assert!(!folder.join("checkpoints").exists(), "{set}: something was written");
    }
    assert!(train(&folder, 2, &[]).status.success());
    let out = train(&folder, 3, &["loop.seed=5"]);
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(text.contains("these keys differ: loop.seed"), "{text}");
}
