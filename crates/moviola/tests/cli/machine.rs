//! Instruction sets: what `inspect --machine` tells, and what `MOVIOLA_ISA` chooses.

use std::process::Output;

use kernels::InstructionSet;

use crate::folder::{Copy, read};

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
        let (rate, rest) = said.trim().split_once(',').unwrap_or((said.trim(), ""));
        match set.is_present() {
            true => assert!(rate.parse::<f64>().unwrap() > 0.1, "{line}"),
            false => assert!(said.contains("not here"), "{line}"),
        }
        assert_eq!(rest.contains("in use"), set == InstructionSet::Portable, "{line}");
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
        for word in ["error: MOVIOLA_ISA: ", "`avx1024`", "portable, avx2, avx512"] {
            assert!(text.contains(word), "no `{word}` in: {text}");
        }
        assert_eq!(copy.written(), Vec::<String>::new());
    }
}

/// Latents of a whole run are the same to the bit in every set with fused multiply-adds.
#[test]
fn sets_give_the_same_latents() {
    let copy = Copy::of("pixart-tiny");
    let model = copy.path("model");
    let latents = |set: InstructionSet| {
        let [out, saved] = ["png", "safetensors"].map(|kind| copy.path(&format!("{set}.{kind}")));
        let [model, out, saved] = [&model, &out, &saved].map(|path| path.to_str().unwrap());
        let mut arguments = vec!["generate", "--model", model, "--output", out];
        arguments.extend(["--save-latents", saved, "--prompt", "a fox", "--steps", "2"]);
        arguments.extend(["--height", "32", "--width", "32"]);
        let output = run_under(set.name(), &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        read(saved.as_ref())
    };
    let fused = InstructionSet::present().filter(|set| *set > InstructionSet::Portable);
    let all: Vec<_> = fused.map(latents).collect();
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "latents differ");
}
