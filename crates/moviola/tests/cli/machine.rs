//! Instruction sets: what `inspect --machine` tells, and what `MOVIOLA_ISA` chooses.

use std::path::PathBuf;
use std::process::Output;

use kernels::{InstructionSet, Operands};

use crate::folder::{Copy, read};
use crate::training::recipe;

/// Runs the binary with `MOVIOLA_ISA` set.
fn run_under(set: &str, arguments: &[&str]) -> Output {
    let mut command = assert_cmd::Command::cargo_bin("moviola").unwrap();
    command.env("MOVIOLA_ISA", set).args(arguments).output().unwrap()
}

#[test]
fn the_machine_is_a_table_of_sets() {
    let output = run_under("portable", &["inspect", "--machine", "--threads", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines = text.lines();
    assert!(lines.next().is_some_and(|title| title.contains("on 1 thread")), "{text}");
    for set in InstructionSet::ALL {
        let line = lines.next().unwrap();
        let (name, said) = line.split_once(' ').unwrap();
        assert_eq!(name, set.name());
        let cells: Vec<_> = said.split_whitespace().collect();
        match set.is_present() {
            true => {
                let rate = |cell: usize| cells[cell].parse::<f64>().unwrap_or(0.0);
                assert!(rate(0) > 0.1 && rate(2) > 0.1, "{line}");
                assert_eq!(rate(1) > 0.1, set.multiplies_bf16(), "{line}");
            }
            false => assert!(said.contains("not here"), "{line}"),
        }
        assert_eq!(line.contains("in use"), set == InstructionSet::Portable, "{line}");
    }
}

#[test]
fn a_set_that_is_none_is_refused_before_work() {
    let copy = Copy::of("pixart-tiny");
    let model = copy.path("model");
    let out = copy.path("out.png");
    let [model, out] = [&model, &out].map(|path| path.to_str().unwrap());
    for command in [
        vec!["generate", "--model", model, "--output", out, "--prompt", "a fox"],
        vec!["inspect", "--machine"],
    ] {
        let output = run_under("avx1024", &command);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        for word in ["error: MOVIOLA_ISA: ", "`avx1024`", "portable, avx2, avx512, avx512vnni"] {
            assert!(text.contains(word), "no `{word}` in: {text}");
        }
        assert_eq!(copy.written(), Vec::<String>::new());
    }
}

/// The file of latents of a small run under `set`, with these arguments as well.
fn latents(copy: &Copy, set: InstructionSet, more: &[&str]) -> PathBuf {
    let name = format!("{set}{}", more.concat());
    let [out, saved] = ["png", "safetensors"].map(|kind| copy.path(&format!("{name}.{kind}")));
    let model = copy.path("model");
    let paths = [&model, &out, &saved].map(|path| path.to_str().unwrap());
    let mut arguments = vec!["generate", "--model", paths[0], "--output", paths[1]];
    arguments.extend(["--save-latents", paths[2], "--prompt", "a fox", "--steps", "2"]);
    arguments.extend(["--height", "32", "--width", "32", "--overwrite"]);
    arguments.extend(more);
    let output = run_under(set.name(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    saved
}

fn fused() -> impl Iterator<Item = InstructionSet> {
    InstructionSet::present().filter(|set| *set > InstructionSet::Portable)
}

/// Latents of a whole run are the same to the bit in every set with fused multiply-adds: in f32, and in
/// bytes too. With more ranks the set is the same one.
#[test]
fn sets_give_the_same_latents() {
    let copy = Copy::of("pixart-tiny");
    for more in [&[][..], &["--quantize", "int8"], &["--ranks", "2"]] {
        let all: Vec<_> = fused().map(|set| read(&latents(&copy, set, more))).collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "latents differ with {more:?}");
    }
}

/// How far latents are from those of f32, as a share of their deviation.
fn error(copy: &Copy, set: InstructionSet, more: &[&str]) -> f64 {
    let values = |path: PathBuf| -> Vec<f64> {
        let bytes = std::fs::read(path).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let data = tensors.tensor("latents").unwrap().data().to_vec();
        data.as_chunks().0.iter().map(|word| f64::from(f32::from_le_bytes(*word))).collect()
    };
    let [own, exact] = [more, &[]].map(|more| values(latents(copy, set, more)));
    let power = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>();
    let difference = power(&mut own.iter().zip(&exact).map(|(own, exact)| own - exact));
    (difference / power(&mut exact.iter().copied())).sqrt()
}

/// `--dtype bf16` and `--quantize int8` change latents, and by no more than they may.
#[test]
fn rounding_stays_within_its_bounds() {
    let copy = Copy::of("pixart-tiny");
    for set in InstructionSet::present() {
        let narrow = error(&copy, set, &["--dtype", "bf16"]);
        assert!(narrow > 0.0 && narrow < 3e-2, "{set}: {narrow}");
        let bytes = error(&copy, set, &["--quantize", "int8"]);
        assert!(bytes > 0.0 && bytes < 5e-2, "{set}: {bytes}");
    }
}

#[test]
fn inspect_tells_what_bytes_would_cost() {
    let copy = Copy::of("pixart-tiny");
    let model = copy.path("model");
    let output = run_under("", &["inspect", model.to_str().unwrap(), "--quantization"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("transformer: transformer_blocks.0.attn1.to_q.weight"), "{text}");
    assert!(text.lines().last().unwrap().contains("in bytes"), "{text}");
    assert!(!text.contains("proj_out"), "what is kept is not rounded: {text}");
}

/// Twenty steps of the quickstart's recipe lose what they always did, to the bit, in every set with
/// fused multiply-adds. A change that means to change them writes the golden anew, and says so.
#[test]
fn the_first_losses_of_the_quickstart_are_the_same_everywhere() {
    let golden = include_str!("quickstart_losses.json");
    let golden: Vec<f64> = serde_json::from_str(golden).unwrap();
    let copy = Copy::of("pixart-tiny");
    let sets = InstructionSet::with_own(Operands::F32);
    for set in sets.filter(|set| *set > InstructionSet::Portable) {
        let folder = copy.path(set.name());
        let (recipe, run) = (recipe("quickstart.yaml"), folder.to_str().unwrap());
        let mut arguments = vec!["train", &recipe, "--run", run, "--set", "loop.steps=20"];
        arguments.extend(["--set", "models.student.rate.warmup=5"]);
        let output = run_under(set.name(), &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let log = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
        let loss = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["losses"]["loss"].as_f64()
        };
        let losses: Vec<f64> = log.lines().filter_map(loss).collect();
        assert_eq!(losses, golden, "{set}");
    }
}
