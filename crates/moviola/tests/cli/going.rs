//! Runs that go on in another way, and runs that begin from what others learnt.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::experts::Trained;
use crate::folder::{Copy, distance, goldens, run};
use crate::training::{arguments, recipe, train, words};

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn state(folder: &Path, step: usize) -> Vec<u8> {
    fs::read(folder.join(format!("checkpoints/checkpoint-{step:08}/state.safetensors"))).unwrap()
}

#[track_caller]
fn good(arguments: &[&str]) -> String {
    let out = run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", words(&out));
    words(&out)
}

#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let out = run(arguments);
    assert_eq!(out.status.code(), Some(2), "{arguments:?}: {}", words(&out));
    for part in parts {
        assert!(words(&out).contains(part), "no `{part}` in: {}", words(&out));
    }
}

/// Another learning rate from some step on: only when told, recorded, and the same bits however often it stops.
#[test]
fn a_run_goes_on_with_another_rate() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { temporary.path().join(name) };
    let keep = "checkpoint={every: 2, keep_last: 9}";
    assert!(train(&path("run"), 4, &[keep]).status.success());
    let folder = text(&path("run"));
    let steps = ["--set", "loop.steps=8"];
    let rate = ["--change", "models.student.rate.peak=0.0005"];
    let more = ["--set", "models.student.rate.peak=0.0005"];
    let base = ["train", "--run", &folder];
    refused(
        &[&base[..], &steps, &more].concat(),
        &["models.student.rate.peak (was 0.00", "is 0.0005)", "--change"],
    );
    // An error names the flag that was typed, and so does its remedy.
    for (set, said) in [
        ("rate.peak=-1", "--change models.student.rate.peak=-1: `models.student.rate.peak` is -1"),
        ("rate.warmup=99", "add --change models.student.rate.warmup=0"),
    ] {
        let set = format!("models.student.{set}");
        refused(&[&base[..], &["--change", &set]].concat(), &[said]);
        let both = ["--change", &set, "--set", "data.batch=0"];
        refused(&[&base[..], &both].concat(), &["  --change models", "  --set data.batch=0: "]);
    }
    refused(
        &[&base[..], &["--change", "data.batch=3"]].concat(),
        &["`data.batch` cannot change within a run", "models.student.rate"],
    );
    let said = good(&[&base[..], &steps, &rate].concat());
    assert!(said.contains("from step 5 on models.student.rate.peak is 0.0005"), "{said}");
    let changes = fs::read_to_string(path("run/changes.jsonl")).unwrap();
    assert!(changes.contains("\"step\":4") && changes.contains("0.0005"), "{changes}");
    let page = fs::read_to_string(path("run/report.html")).unwrap();
    assert!(page.contains("models.student.rate.peak from"), "the page tells it");
    // A run that dies before its next checkpoint goes on with what was changed.
    let changed = state(&path("run"), 8);
    fs::remove_dir_all(path("run/checkpoints/checkpoint-00000006")).unwrap();
    fs::remove_dir_all(path("run/checkpoints/checkpoint-00000008")).unwrap();
    good(&base);
    assert!(state(&path("run"), 8) == changed, "the states differ");
    // What is changed in a run that is over holds when it is asked for more steps.
    assert!(train(&path("over"), 4, &[keep]).status.success());
    let over = text(&path("over"));
    good(&["train", "--run", &over, rate[0], rate[1]]);
    let kept = fs::read_to_string(path("over/recipe.yaml")).unwrap();
    assert!(kept.contains("changes.jsonl"), "{kept}");
    good(&["train", "--run", &over, steps[0], steps[1]]);
    assert!(state(&path("over"), 8) == changed, "what was changed is forgotten");
    // Another rate is another result.
    assert!(train(&path("plain"), 8, &[keep]).status.success());
    assert!(state(&path("plain"), 8) != changed, "the rate changes nothing");
    refused(
        &["train", "--run", &text(&path("new")), &recipe("quickstart.yaml"), rate[0], rate[1]],
        &["no checkpoint yet"],
    );
}

/// What was changed after a checkpoint that a run goes back to has not happened; what holds from there on is said and kept.
#[test]
fn a_run_that_goes_back_tells_what_holds() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { temporary.path().join(name) };
    assert!(train(&path("run"), 2, &["checkpoint={every: 2, keep_last: 9}"]).status.success());
    let folder = text(&path("run"));
    for (steps, rate) in [(4, "0.0005"), (6, "0.0007")] {
        let (steps, rate) =
            (format!("loop.steps={steps}"), format!("models.student.rate.peak={rate}"));
        good(&["train", "--run", &folder, "--set", &steps, "--change", &rate]);
    }
    let first = text(&path("run/checkpoints/checkpoint-00000002"));
    let said = good(&["train", "--run", &folder, "--resume", &first]);
    assert!(said.contains("from step 3 on models.student.rate.peak is 0.0007"), "{said}");
    let changes = fs::read_to_string(path("run/changes.jsonl")).unwrap();
    let steps: Vec<&str> = changes.lines().map(|line| &line[..9]).collect();
    assert_eq!(steps, [r#"{"step":2"#], "{changes}");
    let page = fs::read_to_string(path("run/report.html")).unwrap();
    assert!(page.contains("to 0.0007 after step 2") && !page.contains("0.0005"), "the page");
}

/// A cosine that begins again, as the log has it, also where the run was stopped in between.
#[test]
fn a_rate_falls_and_begins_again() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    let rate = "models.student.rate={peak: 0.001, warmup: 0, decay: {kind: cosine-restarts, cycles: 2, end: 0.1}}";
    let keep = "checkpoint={every: 3, keep_last: 9}";
    assert!(train(&folder, 8, &[rate, keep]).status.success());
    let rates = |folder: &Path| -> Vec<f64> {
        let log = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
        let lines =
            log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter_map(|line| line["roles"][0]["rate"].as_f64()).collect()
    };
    let all = rates(&folder);
    // Halfway of a cycle of four updates the cosine is at its middle.
    let cycle = [1.0, 0.868, 0.55, 0.232].map(|share| share * 0.001);
    assert_eq!(all.len(), 8);
    for (at, rate) in all.iter().enumerate() {
        assert!((rate - cycle[at % 4]).abs() < 1e-6, "update {at}: {rate}");
    }
    fs::remove_dir_all(folder.join("checkpoints/checkpoint-00000008")).unwrap();
    fs::remove_dir_all(folder.join("checkpoints/checkpoint-00000006")).unwrap();
    good(&["train", "--run", &text(&folder)]);
    assert_eq!(rates(&folder), all);
}

/// Moments in eight bits: stopped and resumed the run has the same bytes, near to what f32 learns and not the same.
#[test]
fn eight_bit_moments_go_on_to_the_bit() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { temporary.path().join(name) };
    let set = |kind: &str| format!("models.student.optimizer={{kind: {kind}}}");
    let (coded, plain) = (set("adamw8bit"), set("adamw"));
    for (folder, steps, optimizer) in
        [("whole", 6, &coded), ("parts", 3, &coded), ("parts", 6, &coded), ("plain", 6, &plain)]
    {
        let out = train(&path(folder), steps, &[optimizer]);
        assert!(out.status.success(), "{}", words(&out));
    }
    let [whole, parts, plain] = ["whole", "parts", "plain"].map(|name| state(&path(name), 6));
    assert!(whole == parts, "a resumed run is another");
    assert!(whole != plain, "eight bits change nothing");
}

/// A run goes on from the checkpoint that is named, its own or another run's.
#[test]
fn a_checkpoint_can_be_named() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { temporary.path().join(name) };
    let keep = "checkpoint={every: 2, keep_last: 9}";
    assert!(train(&path("run"), 6, &[keep]).status.success());
    let last = state(&path("run"), 6);
    let second = text(&path("run/checkpoints/checkpoint-00000002"));
    let folder = text(&path("run"));
    let said = good(&["train", "--run", &folder, "--resume", &second]);
    assert!(said.contains("going on after step 2"), "{said}");
    assert!(state(&path("run"), 6) == last, "the same steps make the same bits");
    let other = |name: &str, from: &str| {
        let mut all = arguments(&path(name), 6, &[keep]);
        all.extend(["--resume".to_owned(), from.to_owned()]);
        all
    };
    let all = other("other", &second);
    good(&all.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(state(&path("other"), 6) == last, "another folder makes the same bits");
    // The run that it is of keeps the recipe.
    good(&["train", "--run", &text(&path("same")), "--resume", &second]);
    assert!(state(&path("same"), 6) == last, "another recipe was used");
    good(&["train", "--run", &text(&path("newest")), "--resume", &folder, "--set", "loop.steps=7"]);
    let all = other("other", &folder);
    refused(
        &all.iter().map(String::as_str).collect::<Vec<_>>(),
        &["of another run, and this one has checkpoints of its own"],
    );
    let all = other("third", &text(&path("nowhere")));
    refused(&all.iter().map(String::as_str).collect::<Vec<_>>(), &["no such run or checkpoint"]);
}

/// A run is told its paths once: from any folder it goes on to the same bits, and is exported to the same bytes.
#[test]
fn a_run_goes_on_from_any_folder() {
    let (own, copy) = (Trained::new("wan-tiny-i2v", "32x32x1"), Copy::of("wan-tiny-i2v"));
    fs::rename(own.place.path("dataset"), copy.path("dataset")).unwrap();
    fs::copy(own.place.path("clips/a.png"), copy.path("a.png")).unwrap();
    let (here, elsewhere) = (copy.path(""), tempfile::tempdir().unwrap());
    let within = |folder: &Path, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moviola"));
        let out = command.args(arguments).current_dir(folder).output().unwrap();
        assert!(out.status.success(), "{arguments:?} in {}: {}", folder.display(), words(&out));
    };
    let yaml = recipe("wan-i2v-lora.yaml");
    let sets = [
        "models.student.from=model",
        "data.source.path=dataset",
        "models.student.rate={peak: 0.05, warmup: 0, decay: {kind: constant}}",
        "checkpoint={every: 2, keep_last: 9}",
        "data.held_out=1",
        "callbacks.validation={every: 2, steps: 1, prompts: [a fox], size: [1, 32, 32], given: {image: a.png}}",
    ];
    let told = |run: &str, steps: usize| -> Vec<String> {
        let mut all = ["train", &yaml, "--run", run].map(str::to_owned).to_vec();
        let steps = format!("loop={{steps: {steps}, seed: 1}}");
        for set in sets.into_iter().chain([steps.as_str()]) {
            all.extend(["--set".to_owned(), set.to_owned()]);
        }
        all
    };
    let train = |folder: &Path, run: &str, steps: usize| {
        let all = told(run, steps);
        within(folder, &all.iter().map(String::as_str).collect::<Vec<_>>());
    };
    train(&here, "whole", 6);
    train(&here, "run", 2);
    let run = text(&copy.path("run"));
    let checkpoint = text(&copy.path("run/checkpoints/checkpoint-00000002"));
    let files = ["one", "two", "three"].map(|name| copy.path(&format!("{name}.safetensors")));
    let [one, two, three] = files.each_ref().map(|path| text(path));
    within(&here, &["export", "run", "--output", &one]);
    within(elsewhere.path(), &["export", &run, "--output", &two]);
    within(elsewhere.path(), &["export", &checkpoint, "--output", &three]);
    let [one, two, three] = files.map(|path| fs::read(path).unwrap());
    assert!(one == two && one == three, "another folder is other bytes");
    within(elsewhere.path(), &["inspect", &run]);
    within(elsewhere.path(), &["train", "--run", &run, "--set", "loop.steps=4"]);
    train(elsewhere.path(), &run, 6);
    assert!(state(&copy.path("run"), 6) == state(&copy.path("whole"), 6), "the states differ");
    // A run that begins from it is told them too, and keeps them.
    let next = text(&copy.path("next"));
    within(elsewhere.path(), &["train", "--run", &next, "--resume", &checkpoint]);
    within(elsewhere.path(), &["export", &next, "--output", "next.safetensors"]);
}

/// Levels that an expert never sees are refused by their key.
#[test]
fn levels_beside_those_of_an_expert_are_named() {
    let model = format!("models.student.from={}", text(&goldens().join("wan-tiny-experts")));
    let yaml = recipe("wan22-expert-lora.yaml");
    let uniform = "levels={video: {kind: uniform, highest: 0.01}}";
    let sets = ["--set", &model, "--set", "callbacks={}", "--set", uniform];
    refused(
        &[&["train", &yaml, "--dry-run"][..], &sets].concat(),
        &["`levels.video.highest`", "is 0.01, but", "models.student.expert"],
    );
}

/// A training that hardly moves shows what it began with.
const STILL: &str = "models.student.rate={peak: 1.0e-12, warmup: 0, decay: {kind: constant}}";

/// Adapters begin as a file of any dialect, and a network with the weights of a file.
#[test]
fn a_run_begins_from_what_another_learnt() {
    let own = Trained::new("wan-tiny", "32x32x1");
    let look = "callbacks={}";
    let none = "data.held_out=0";
    let first = own.train("wan-lora.yaml", "first", &[look, none]);
    assert!(first.status.success(), "{}", words(&first));
    let lora = own.export("first", "lora.safetensors", &["--dialect", "kohya"]);
    let whole = own.export("first", "whole.safetensors", &["--as", "file", "--dialect", "comfyui"]);
    let plain = own.latents(&own.model, &[]);
    let tuned = own.latents(&own.model, &["--lora", &lora]);
    assert!(distance(&tuned, &plain) > 0.01, "the LoRA changes nothing");
    // Half as strong a rule, and the same effect.
    let from = format!("models.student.learns.from={lora}");
    let out = own.train(
        "wan-lora.yaml",
        "second",
        &[look, none, STILL, &from, "models.student.learns.alpha=16"],
    );
    assert!(out.status.success(), "{}", words(&out));
    let again = own.export("second", "again.safetensors", &[]);
    let off = distance(&own.latents(&own.model, &["--lora", &again]), &tuned);
    assert!(off < 1e-3, "{off}");
    let out =
        own.train("wan-lora.yaml", "no", &[look, none, &from, "models.student.learns.rank=4"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(words(&out).contains("it has rank 32, but `learns.rank` is 4"), "{}", words(&out));
    let weights = format!("models.student.weights={whole}");
    let out = own.train("wan-full.yaml", "third", &[look, none, STILL, &weights]);
    assert!(out.status.success(), "{}", words(&out));
    let folder = own.export("third", "third-folder", &[]);
    let off = distance(&own.latents(&folder, &[]), &tuned);
    assert!(off < 1e-3, "{off}");
    let out =
        own.train("wan-full.yaml", "no", &[look, none, &format!("models.student.weights={lora}")]);
    assert_eq!(out.status.code(), Some(2));
    assert!(words(&out).contains("models.student.weights"), "{}", words(&out));
}

/// Several averages, each exported by its decay.
#[test]
fn several_averages() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("run");
    let averages = "callbacks.ema=[{decay: 0.9, warm_up: false}, {decay: 0.5, warm_up: false}]";
    let out = train(&folder, 4, &[averages]);
    assert!(out.status.success(), "{}", words(&out));
    let mut files = Vec::new();
    for (name, more) in [
        ("live", &[][..]),
        ("first", &["--ema"]),
        ("slow", &["--ema", "0.9"]),
        ("quick", &["--ema", "0.5"]),
    ] {
        let output = text(&temporary.path().join(format!("{name}.safetensors")));
        good(&[&["export", &text(&folder), "--as", "file", "--output", &output], more].concat());
        files.push(fs::read(output).unwrap());
    }
    assert!(files[1] == files[2], "the first is the one without a number");
    assert!(files[0] != files[1] && files[1] != files[3] && files[0] != files[3]);
    refused(
        &["export", &text(&folder), "--output", "x", "--ema", "0.99"],
        &["no running average of decay 0.99; it has 0.9, 0.5"],
    );
    let twice = "callbacks.ema=[{decay: 0.9}, {decay: 0.9}]";
    let out = train(&temporary.path().join("twice"), 4, &[twice]);
    assert!(words(&out).contains("another decay"), "{}", words(&out));
}

/// What others call so is named, and every key is listed.
#[test]
fn names_from_elsewhere_and_the_list_of_keys() {
    let yaml = recipe("wan-lora.yaml");
    for (set, word) in [
        ("learning_rate=0.1", "models.student.rate.peak"),
        ("loop.max_grad_norm=1", "loop.clip"),
        ("models.student.network_dim=4", "models.student.learns.rank"),
        ("data.num_repeats=4", "kind: mix"),
    ] {
        refused(
            &["train", &yaml, "--dry-run", "--set", set],
            &["what others call so is here", word],
        );
    }
    // What a terminal would obey is shown instead.
    let out = run(&["train", &yaml, "--dry-run", "--set", "\u{1b}[31m\u{7}=1"]);
    assert_eq!(out.status.code(), Some(2));
    let said = words(&out);
    assert!(said.contains(r"\u001b[31m\u0007") && !said.contains(['\u{1b}', '\u{7}']), "{said:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipe-keys.md");
    let own = String::from_utf8(run(&["train", "--keys"]).stdout).unwrap();
    let kept = fs::read_to_string(page).unwrap_or_default();
    assert!(kept == own, "run `moviola train --keys > docs/recipe-keys.md`");
    for row in [
        "| `loop.steps` | a whole number, at least 1 | required | The last step. |",
        "| `models.student.learns: lora.rank` | a whole number, at least 1 | required |",
        "| `data.source.kind: mix` | a name |",
    ] {
        assert!(own.contains(row), "no row {row}");
    }
}

/// Products in bf16: stopped and resumed the run has the same bytes, near to what f32 learns and not the same; where
/// the machine does not multiply bf16, it is refused.
#[test]
fn bf16_products_go_on_to_the_bit() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { temporary.path().join(name) };
    let narrow = "models.student.products=bf16";
    let keep = "checkpoint={every: 4, keep_last: 9}";
    let out = train(&path("whole"), 8, &[narrow, keep]);
    if !kernels::InstructionSet::present().any(kernels::InstructionSet::multiplies_bf16) {
        assert_eq!(out.status.code(), Some(2));
        assert!(words(&out).contains("models.student.products: bf16 needs"), "{}", words(&out));
        return;
    }
    assert!(out.status.success(), "{}", words(&out));
    let whole = state(&path("whole"), 8);
    fs::remove_dir_all(path("whole/checkpoints/checkpoint-00000008")).unwrap();
    good(&["train", "--run", &text(&path("whole"))]);
    assert!(state(&path("whole"), 8) == whole, "a run that goes on is another");
    assert!(train(&path("exact"), 8, &[keep]).status.success());
    assert!(state(&path("exact"), 8) != whole, "nothing is rounded");
    let losses = |name: &str| -> Vec<f64> {
        let text = fs::read_to_string(path(name).join("metrics.jsonl")).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        let loss = |line: serde_json::Value| line["losses"]["loss"].as_f64();
        lines.filter_map(loss).collect()
    };
    let (own, exact) = (losses("whole"), losses("exact"));
    assert!(own.len() == exact.len() && !own.is_empty(), "{own:?} {exact:?}");
    for (own, exact) in own.iter().zip(&exact) {
        assert!((own - exact).abs() < 4e-3 * exact.abs(), "a loss of {own} instead of {exact}");
    }
    assert_ne!(own, exact);
}

/// Another kind of optimizer is refused however it is said, and what a killed run left half-written stops nobody.
#[test]
fn what_cannot_change_is_refused_in_any_form() {
    let temporary = tempfile::tempdir().unwrap();
    let run = temporary.path().join("run");
    assert!(train(&run, 4, &["checkpoint={every: 2}"]).status.success());
    let folder = text(&run);
    let base = ["train", "--run", &folder, "--set", "loop.steps=6"];
    for kind in ["optimizer={kind: sgd}", "optimizer.kind=sgd"] {
        let change = format!("models.student.{kind}");
        let said = ["`models.student.optimizer.kind` cannot change within a run"];
        refused(&[&base[..], &["--change", &change]].concat(), &said);
    }
    refused(
        &[&base[..], &["--change", "optimizer.rate=1e-4"]].concat(),
        &["models.student.rate.peak"],
    );
    // The same kind with other numbers may.
    let decay = "models.student.optimizer={kind: muon, weight_decay: 0.25, exclude: [time, place, enter, leave, text, \
                 table], rest: {betas: [0.9, 0.99], weight_decay: 0.01}}";
    let decay = ["--change", decay];
    let told = good(&[&base[..], &decay].concat());
    assert!(told.contains("models.student.optimizer.weight_decay is 0.25"), "{told}");
    let file = run.join("changes.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{whole}{{\"step\":6,\"key\":\"mod")).unwrap();
    good(&["inspect", &folder]);
    let rate = ["--set", "loop.steps=8", "--change", "models.student.rate.peak=0.0005"];
    good(&[&["train", "--run", &folder][..], &rate].concat());
    let kept = fs::read_to_string(&file).unwrap();
    assert!(kept.starts_with(&whole), "{kept}");
    let lines: Vec<serde_json::Value> =
        kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["key"], "models.student.rate.peak", "{kept}");
    fs::write(&file, format!("half\n{kept}")).unwrap();
    refused(&["inspect", &folder], &["changes.jsonl: line 1", "remove the line"]);
}
