//! Training by processes: the bits of threads in every layout, and the losses of one rank.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{golden, moviola, told};

/// The arguments of a run that takes a step in milliseconds.
pub(crate) fn arguments(folder: &Path, steps: usize) -> Vec<String> {
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
pub(crate) fn command(processes: usize, folder: &Path, steps: usize, more: &[&str]) -> Command {
    let all = arguments(folder, steps);
    let all: Vec<&str> = all.iter().map(String::as_str).chain(more.iter().copied()).collect();
    moviola(processes, &all)
}

pub(crate) fn trained(processes: usize, folder: &Path, steps: usize, more: &[&str]) {
    let output = command(processes, folder, steps, more).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
}

/// Every byte of the state after a step, which ranks that hold parameters together write in parts.
pub(crate) fn state(folder: &Path, step: usize) -> Vec<u8> {
    let place = folder.join(format!("checkpoints/checkpoint-{step:08}"));
    let entries = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path());
    let is_part = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "safetensors");
    let mut parts: Vec<PathBuf> = entries.filter(is_part).collect();
    parts.sort();
    parts.iter().flat_map(|path| fs::read(path).unwrap()).collect()
}

/// The losses of a run, step by step.
fn losses(folder: &Path) -> Vec<f64> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        value["losses"]["loss"].as_f64()
    };
    text.lines().filter_map(line).collect()
}

/// Layouts of training by their number of processes.
const LAYOUTS: [(usize, &[&str]); 11] = [
    (2, &[]),
    (4, &[]),
    (4, &["--shard", "2"]),
    (2, &["--shard", "1"]),
    (2, &["--ulysses", "2"]),
    (2, &["--ring", "2"]),
    (2, &["--tensor", "2"]),
    (4, &["--data", "2", "--ulysses", "2"]),
    (4, &["--ulysses", "2", "--ring", "2"]),
    (4, &["--data", "2", "--tensor", "2", "--shard", "2"]),
    (4, &["--ring", "2", "--tensor", "2"]),
];

/// The law on processes: what threads learn to the bit, which is one rank's within 1e-5.
#[test]
fn processes_learn_in_every_layout_what_threads_and_one_rank_learn() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let forcing = ["method={name: diffusion_forcing}", "levels={}"];
    let sgd = "models.student.optimizer={kind: sgd, momentum: 0.9}";
    for (name, sets) in [("finetune", &[sgd][..]), ("forcing", &[sgd, forcing[0], forcing[1]])] {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
        let alone = at(&format!("{name} one"));
        trained(1, &alone, 5, &sets);
        let want = losses(&alone);
        assert_eq!(want.len(), 5);
        let layouts =
            LAYOUTS.iter().enumerate().filter(|(at, _)| name == "finetune" || at % 4 == 0);
        for (number, (processes, layout)) in layouts {
            let [ours, theirs] =
                ["processes", "threads"].map(|kind| at(&format!("{name} {kind} {number}")));
            let ranks = processes.to_string();
            trained(*processes, &ours, 5, &[&sets[..], *layout].concat());
            trained(1, &theirs, 5, &[&sets[..], *layout, &["--ranks", &ranks]].concat());
            assert!(
                state(&ours, 5) == state(&theirs, 5),
                "{name}, {processes} processes {layout:?}: another state than on threads"
            );
            for (got, want) in losses(&ours).iter().zip(&want) {
                let off = (got - want).abs() / want;
                assert!(off <= 1e-5, "{name}, {processes} processes {layout:?}: {off:e}");
            }
        }
    }
}

/// Adapters, and three roles of which one never learns and one learns at every second iteration: the bits of threads.
#[test]
fn processes_learn_adapters_and_distil_as_threads_do() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let model = golden("wan-tiny");
    let texts = |path: PathBuf| path.to_str().unwrap().to_owned();
    fs::create_dir(at("clips")).unwrap();
    for number in 0..6_u8 {
        let pixels = (0..32 * 32 * 3).map(|place| (place as u8).wrapping_mul(7 + number));
        let image = image::RgbImage::from_raw(32, 32, pixels.collect()).unwrap();
        image.save(at("clips").join(format!("{number}.png"))).unwrap();
        fs::write(at("clips").join(format!("{number}.txt")), format!("picture {number}")).unwrap();
    }
    let (clips, data) = (texts(at("clips")), texts(at("data")));
    let words = ["preprocess", "--model", &model, "--data", &clips, "--output", &data];
    let output = moviola(2, &[&words[..], &["--bucket", "32x32x1"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let rate = |role: &str| format!("models.{role}.rate={{peak: 1.0e-4}}");
    let from = |role: &str| format!("models.{role}.from={model}");
    let both = [
        "loop={steps: 4, seed: 1, accumulation: 2}".to_owned(),
        "data.batch=4".to_owned(),
        "data.partial=drop".to_owned(),
        "callbacks={ema: {decay: 0.9}}".to_owned(),
        format!("data.source.path={data}"),
        rate("student"),
        from("student"),
    ];
    let more =
        ["method.student_every=2".to_owned(), rate("critic"), from("critic"), from("teacher")];
    for (name, more) in [("wan-lora", &[][..]), ("dmd2", &more[..])] {
        let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes/");
        let recipe = format!("{recipe}{name}.yaml");
        for (number, (processes, layout)) in LAYOUTS.iter().enumerate() {
            let learnt = |kind: &str, started: usize, more_layout: &[&str]| {
                let folder = at(&format!("{name} {number} {kind}"));
                let place = texts(folder.clone());
                let mut words = vec!["train", &recipe, "--run", &place, "--threads", "1"];
                words.extend(both.iter().chain(more).flat_map(|set| ["--set", set.as_str()]));
                words.extend(layout.iter().chain(more_layout));
                let output = moviola(started, &words).output().unwrap();
                assert!(output.status.success(), "{name} {layout:?}: {}", told(&output));
                state(&folder, 4)
            };
            let ranks = processes.to_string();
            let (ours, theirs) =
                (learnt("processes", *processes, &[]), learnt("threads", 1, &["--ranks", &ranks]));
            assert!(ours == theirs, "{name}, {processes} processes {layout:?}: another state");
        }
    }
}

/// The quickstart itself, with its optimizer: its first losses are those of one rank on two threads and two processes.
#[test]
fn the_quickstart_begins_on_ranks_as_on_one() {
    let temporary = tempfile::tempdir().unwrap();
    let recipe = arguments(temporary.path(), 20).swap_remove(1);
    let began = |processes: usize, name: &str, more: &[&str]| {
        let folder = temporary.path().join(name);
        let words = ["train", &recipe, "--run", folder.to_str().unwrap(), "--threads", "1"];
        let sets = ["loop.steps=20", "models.student.rate.warmup=10", "checkpoint={every: 0}"];
        let sets = sets.map(|set| ["--set", set]).concat();
        let output = moviola(processes, &[&words[..], &sets, more].concat()).output().unwrap();
        assert!(output.status.success(), "{name}: {}", told(&output));
        losses(&folder)
    };
    let want = began(1, "one", &[]);
    assert_eq!(want.len(), 20);
    for (processes, name, more) in [(1, "threads", &["--ranks", "2"][..]), (2, "processes", &[])] {
        for (got, want) in began(processes, name, more).iter().zip(&want) {
            let off = (got - want).abs() / want;
            assert!(off <= 1e-4, "{name}: {got} {want}");
        }
    }
}

/// Prompts of a validation are shared by processes, and clips are shared by those that encode them.
#[test]
fn processes_make_the_dataset_and_the_clips_of_one() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let look = "callbacks.validation={every: 2, steps: 1, prompts: [a red circle moves right, \
                a blue square moves up, a green circle moves left]}";
    let bytes = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
        files.sort();
        files.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>()
    };
    trained(1, &at("one"), 2, &["--set", look]);
    let want = bytes(&at("one").join("validation/00000000"));
    assert!(want.len() > 3);
    for layout in [&[][..], &["--ulysses", "2"], &["--tensor", "2"]] {
        let folder = at(&format!("looked {}", layout.concat()));
        trained(2, &folder, 2, &[&["--set", look][..], layout].concat());
        assert!(bytes(&folder.join("validation/00000000")) == want, "{layout:?}: other clips");
    }
    let texts = at("captions.txt");
    fs::write(&texts, "a fox\na red cat\na dog on a hill\nrain\nsnow\n").unwrap();
    let made = |processes: usize, name: &str| {
        let (model, output) = (golden("wan-tiny"), at(name));
        let files = [texts.to_str().unwrap(), "--output", output.to_str().unwrap()];
        let words = ["preprocess", "--model", &model, "--texts", "--bucket", "32x32x5", "--data"];
        let output = moviola(processes, &[&words[..], &files].concat()).output().unwrap();
        assert!(output.status.success(), "{processes}: {}", told(&output));
        let folder = at(name);
        [bytes(&folder), bytes(&folder.join("shards"))].concat()
    };
    assert!(made(3, "three") == made(1, "alone"), "three processes make another dataset");
}

/// LTX-2's first rank of every machine wrote logs and checkpoints: a launcher's word about the host decides nothing.
#[test]
fn the_first_rank_of_a_host_is_not_the_first_of_the_job() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    let job = command(2, &folder, 3, &[]);
    let words: Vec<&std::ffi::OsStr> = job.get_args().collect();
    let own = words.iter().position(|word| *word == crate::MOVIOLA).unwrap();
    let alone = ["LOCAL_RANK=0", "NODE_RANK=0", "LOCAL_SIZE=1"];
    let mut hosts = Command::new(job.get_program());
    hosts.args(&words[..own]).arg("env");
    hosts.args(alone.map(|name| format!("OMPI_COMM_WORLD_{name}"))).args(&words[own..]);
    hosts.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let output = hosts.output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(losses(&folder).len(), 3, "a step is logged by one rank");
    assert_eq!(told(&output).matches("2 ranks:").count(), 1, "{}", told(&output));
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
