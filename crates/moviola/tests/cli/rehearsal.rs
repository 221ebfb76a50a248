//! `train --dry-run` is the check of `train` itself, and says everything at once.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::folder::{Copy, run};
use crate::training::{arguments, recipe, words};

const LOOK: &str = "callbacks.validation={every: 2, steps: 1, size: [8, 33, 32]}";

/// Values that cannot be, in parts of a recipe that others than the trainer read.
const WRONG: [(&str, &str); 5] = [
    (
        "models.student.learns={kind: lora, rank: 2, targets: []}",
        "`models.student.learns.targets` is empty, but",
    ),
    (
        "models.student.learns={kind: only, patterns: []}",
        "`models.student.learns.patterns` is empty, but",
    ),
    (
        "models.student.learns={kind: only, patterns: [nope]}",
        "learns.patterns: `nope` matches no parameter",
    ),
    (
        "models.student.recompute={kind: within, gibibytes: -1}",
        "`models.student.recompute.gibibytes` is -1, but it is above 0",
    ),
    (
        "strategy.first_frame_probability=2",
        "`strategy.first_frame_probability` is 2, but a probability lies between 0 and 1",
    ),
];

/// What a dry run refuses, `train` refuses in the same words, and the other way round.
#[test]
fn a_dry_run_refuses_what_train_refuses() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    for (set, expected) in [
        ("loop.steps=0", "--set loop.steps=0: `loop.steps` is 0, but it is at least 1"),
        ("loop.accumulation=0", "`loop.accumulation` is 0"),
        ("data.batch=0", "`data.batch` is 0, but it is at least 1"),
        ("data.caption_dropout=2", "`data.caption_dropout` is 2, but it is a share"),
        (
            "models.student.rate.peak=-1",
            "`models.student.rate.peak` is -1, but it is a number above",
        ),
        ("models.student.rate.warmup=9", "only 2 times; add --set models.student.rate.warmup=0"),
        (
            "models.student.optimizer={kind: adamw, betas: [0.9, 2]}",
            "`models.student.optimizer.betas`",
        ),
        (
            "models.student.learns={kind: lora, rank: 0, targets: [to_q]}",
            "`models.student.learns.rank`",
        ),
        (
            "models.student.rate={peak: 0.001, decay: {kind: cosine-restarts, cycles: 100}}",
            "`models.student.rate.decay.cycles` is 100, but 2 updates follow the warm-up",
        ),
        ("levels={video: {kind: logit_normal, shift: -1}}", "`levels.video.shift` is -1, but"),
        (
            "levels={video: {kind: uniform, lowest: 0.8, highest: 0.5}}",
            "`levels.video.highest` is 0.5, but",
        ),
        ("strategy.name=image_to_video", "image to video is text_to_video here"),
        ("callbacks.validation={every: 0}", "`callbacks.validation.every` is 0"),
        ("callbacks.ema={decay: 1.5}", "`callbacks.ema.decay` is 1.5"),
        (LOOK, "callbacks.validation.size: height is 33"),
        (
            "models.student.learns={kind: lora, rank: 2, targets: [to_q], from: nope.safetensors}",
            "models.student.learns.from: ",
        ),
    ]
    .into_iter()
    .chain(WRONG)
    {
        let all = arguments(&folder, 2, &[set]);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let (trained, rehearsed) = (run(&all), run(&[&all[..], &["--dry-run"]].concat()));
        assert_eq!(trained.status.code(), Some(2), "{set}: {}", words(&trained));
        assert_eq!(rehearsed.status.code(), Some(2), "{set}");
        assert_eq!(words(&trained), words(&rehearsed), "{set}");
        assert!(words(&trained).contains(expected), "{set}: {}", words(&trained));
        assert!(!folder.join("checkpoints").exists(), "{set}: something was written");
    }
    let good = arguments(&folder, 2, &["callbacks.validation={every: 2, steps: 1}"]);
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    assert!(run(&[&good[..], &["--dry-run"]].concat()).status.success());
    assert!(run(&good).status.success());
}

/// A run that this machine has no memory for is refused before anything is allocated, with a batch that fits.
#[test]
fn a_run_beyond_memory_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    let larger = "models.student.new={family: duet, video_channels: 384, text_width: 64, heads: 8, head_width: 64, \
                  depth: 16}";
    let set = ["data.batch=65536", "models.student.rate.warmup=0", larger];
    let all = arguments(&folder, 1, &set);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let (trained, rehearsed) = (run(&all), run(&[&all[..], &["--dry-run"]].concat()));
    for out in [&trained, &rehearsed] {
        assert_eq!(out.status.code(), Some(2), "{}", words(out));
        let said = words(out);
        for part in ["data.batch is 65536: the run takes about", "this machine has", "--force"] {
            assert!(said.contains(part), "no `{part}` in {said}");
        }
    }
    assert!(!folder.exists(), "something was written");
    let said = words(&trained);
    let fitting = said.split("a batch of ").nth(1).and_then(|rest| rest.split_once(' '));
    let fitting = format!("data.batch={}", fitting.expect("a batch that fits").0);
    let all = arguments(&folder, 1, &[&fitting, set[1], larger]);
    let all: Vec<&str> = all.iter().map(String::as_str).chain(["--dry-run"]).collect();
    assert!(run(&all).status.success(), "{fitting} does not fit: {}", words(&run(&all)));
    let forced = arguments(&folder, 1, &set);
    let forced: Vec<&str> = forced.iter().map(String::as_str).collect();
    assert!(run(&[&forced[..], &["--dry-run", "--force"]].concat()).status.success());
}

/// What a user has in the folder of a run is not replaced.
#[test]
fn files_that_no_run_wrote_are_spared() {
    let temporary = tempfile::tempdir().unwrap();
    for name in ["recipe.yaml", "report.html", "metrics.jsonl"] {
        let folder = temporary.path().join(name.replace('.', "-"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(name), "# mine\n").unwrap();
        let all = arguments(&folder, 1, &["models.student.rate.warmup=0"]);
        let out = run(&all.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(out.status.code(), Some(2), "{name}: {}", words(&out));
        assert!(words(&out).contains(&format!("{name} is there, which no run wrote")), "{name}");
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "# mine\n");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "{name}: something was written");
    }
    for name in ["clips/00.gif", "summary.json"] {
        let folder = temporary.path().join(name.replace(['.', '/'], "-"));
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        fs::write(folder.join(name), "mine").unwrap();
        let out = run(&["quickstart", "--run", folder.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(2), "{name}: {}", words(&out));
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "mine");
    }
}

/// What a clip along the way would be made without is said before the first step.
#[test]
fn words_that_validation_does_not_know_are_told() {
    let temporary = tempfile::tempdir().unwrap();
    let look = "callbacks.validation={every: 1, steps: 1, prompts: [a red hexagon moves left]}";
    let all = arguments(&temporary.path().join("run"), 1, &[look, "models.student.rate.warmup=0"]);
    let out = run(&all.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(out.status.success(), "{}", words(&out));
    let said = words(&out);
    assert!(said.contains("warning: callbacks.validation: the prompt has words that this model never learnt: `hexagon`"), "{said}");
}

/// All that is wrong is said at once, each with its place.
#[test]
fn all_complaints_come_at_once() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("recipe.yaml");
    let text = fs::read_to_string(crate::training::recipe("quickstart.yaml")).unwrap();
    fs::write(&path, &text).unwrap();
    let refused = |sets: &[&str]| {
        let mut all = vec!["train", path.to_str().unwrap(), "--dry-run"];
        sets.iter().for_each(|set| all.extend(["--set", set]));
        let out = run(&all);
        assert_eq!(out.status.code(), Some(2), "{}", words(&out));
        words(&out)
    };
    let said = refused(&["loop.steps=0", "data.batch=0", "models.student.rate.peak=-1", LOOK]);
    assert!(said.starts_with("error: 4 things are wrong:\n"), "{said}");
    for key in [
        "`loop.steps` is 0",
        "`data.batch` is 0",
        "`models.student.rate.peak` is -1",
        "callbacks.validation.size: height is 33",
    ] {
        assert!(said.lines().any(|line| line.contains(key)), "no {key}: {said}");
    }
    // Nor does a count below zero hide what else is wrong.
    let said = refused(&[
        "models.student.rate.peak=-1",
        "models.student.rate.warmup=-5",
        "data.batch=0",
        LOOK,
    ]);
    assert!(said.starts_with("error: 4 things are wrong:\n"), "{said}");
    for key in
        ["`models.student.rate.warmup` is -5", "`models.student.rate.peak` is -1", "height is 33"]
    {
        assert!(said.contains(key), "no {key}: {said}");
    }
    // Settings of adapters are looked at one by one, whether they are written together or not.
    let said = refused(&[
        "models.student.learns={kind: lora, rank: 0, alpha: -3, dropout: 2, targets: [to_q]}",
        "data.batch=0",
    ]);
    assert!(said.starts_with("error: 4 things are wrong:\n"), "{said}");
    for key in ["rank` is 0", "alpha` is -3", "dropout` is 2"] {
        assert!(said.contains(&format!("`models.student.learns.{key}")), "no {key}: {said}");
    }
    // Keys and types are all checked before values.
    let said = refused(&["loop.stepz=1", "data.batsh=2", "data.prefetch=x"]);
    assert!(said.starts_with("error: 3 things are wrong:\n"), "{said}");
    for part in ["did you mean `steps`?", "did you mean `batch`?", "`data.prefetch` is text"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    // What stands in the file is found there, and said once.
    fs::write(&path, text.replacen("batch: ", "batch: 0 # ", 1)).unwrap();
    let line = text.lines().position(|line| line.contains("batch: ")).unwrap() + 1;
    let said = refused(&[]);
    assert!(said.contains(&format!("recipe.yaml:{line}:")), "{line}: {said}");
    assert_eq!(said.matches("`data.batch`").count(), 1, "{said}");
    // So is a key that stands twice, in our words.
    let count = text.lines().count();
    fs::write(&path, format!("{}\nmethod: {{ name: finetune }}\n", text.trim_end())).unwrap();
    let said = refused(&[]);
    let place = format!("recipe.yaml:{}:1: key `method` stands twice", count + 1);
    assert!(said.contains(&place) && !said.contains("Options"), "{said}");
    fs::write(&path, &text).unwrap();
    let said = refused(&["loop={steps: 1, steps: 2}"]);
    assert!(said.contains("key `steps` stands twice"), "{said}");
}

/// Editors find the schema of every recipe, and it is the command's own.
#[test]
fn editors_are_told_the_schema() {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let kept = fs::read_to_string(recipes.join("schema.json")).unwrap();
    let own = String::from_utf8(run(&["train", "--schema"]).stdout).unwrap();
    assert_eq!(kept, own, "run `moviola train --schema > recipes/schema.json`");
    for (folder, line) in [
        (recipes.clone(), "# yaml-language-server: $schema=schema.json"),
        (recipes.join("learn"), "# yaml-language-server: $schema=../schema.json"),
    ] {
        let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        for file in files.filter(|file| file.extension().is_some_and(|own| own == "yaml")) {
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text.lines().next(), Some(line), "{}", file.display());
        }
    }
}

/// A student that the hub's cache holds is asked with all else, without a network.
#[test]
fn an_illegal_size_of_a_cached_student_is_told_with_the_rest() {
    let copy = Copy::of("wan-tiny");
    let (revision, cache) = ("a".repeat(40), copy.path("hub/models--org--wan"));
    fs::create_dir_all(cache.join("refs")).unwrap();
    fs::create_dir_all(cache.join("snapshots")).unwrap();
    fs::write(cache.join("refs/main"), &revision).unwrap();
    std::os::unix::fs::symlink(copy.path("model"), cache.join("snapshots").join(&revision))
        .unwrap();
    let look = "callbacks.validation={every: 2, steps: 1, prompts: [a fox], size: [5, 33, 32]}";
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("moviola"));
    command.args(["train", &recipe("wan-lora.yaml"), "--dry-run", "--set", look]);
    command.args(["--set", "models.student.from=org/wan", "--set", "data.batch=0"]);
    command.env("HF_HUB_CACHE", copy.path("hub")).env("HF_HUB_OFFLINE", "1");
    let out = command.output().unwrap();
    let said = words(&out);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(
        said.contains("`data.batch` is 0") && said.contains("callbacks.validation.size: "),
        "{said}"
    );
}
