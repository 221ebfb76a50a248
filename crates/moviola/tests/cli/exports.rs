//! What is exported: every dialect, type and role; the same bytes each time, for whom the umask lets read.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use safetensors::{Dtype, SafeTensors};
use tempfile::TempDir;

use crate::folder::{goldens, read, run};
use crate::training::{recipe, words};

/// A run that trained the tiny Wan on two pictures.
struct Trained(TempDir);

impl Trained {
    fn new(learns: &str) -> Trained {
        let own = Trained(tempfile::tempdir().unwrap());
        fs::create_dir(own.path("clips")).unwrap();
        for (name, level) in [("a", 40), ("b", 200)] {
            let picture = image::RgbImage::from_fn(32, 32, |x, y| {
                image::Rgb([level, (8 * x) as u8, (8 * y) as u8])
            });
            picture.save(own.path(&format!("clips/{name}.png"))).unwrap();
            fs::write(own.path(&format!("clips/{name}.txt")), "a fox").unwrap();
        }
        let model = goldens().join("wan-tiny");
        let model = model.to_str().unwrap();
        let (clips, dataset) = (own.text("clips"), own.text("dataset"));
        let preprocess = ["preprocess", "--model", model, "--data", &clips, "--output", &dataset];
        own.good(&[&preprocess[..], &["--bucket", "32x32x1"]].concat());
        let sets = [
            format!("models.student.from={model}"),
            format!("models.student.learns={learns}"),
            "models.student.rate={peak: 0.05, warmup: 0, decay: {kind: constant}}".to_owned(),
            format!("data.source.path={dataset}"),
            "loop={steps: 2, seed: 1}".to_owned(),
            "checkpoint={every: 2}".to_owned(),
            "callbacks={}".to_owned(),
        ];
        let (recipe, folder) = (recipe("wan-lora.yaml"), own.text("run"));
        let mut train = vec!["train", &recipe, "--run", &folder];
        sets.iter().for_each(|set| train.extend(["--set", set]));
        own.good(&train);
        own
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    #[track_caller]
    fn good(&self, arguments: &[&str]) {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", words(&output));
    }

    #[track_caller]
    fn export(&self, name: &str, more: &[&str]) -> PathBuf {
        let (folder, output) = (self.text("run"), self.text(name));
        self.good(&[&["export", &folder, "--output", &output], more].concat());
        self.path(name)
    }

    /// The final latents of a small request.
    #[track_caller]
    fn latents(&self, more: &[&str]) -> Vec<f32> {
        let model = goldens().join("wan-tiny");
        let (output, latents) = (self.text("out.png"), self.text("latents"));
        let usual = ["generate", "--prompt", "a fox", "--steps", "2", "--frames", "1", "--height"];
        let usual = [&usual[..], &["32", "--width", "32", "--max-tokens", "8"]].concat();
        let places = ["--overwrite", "--output", &output, "--save-latents", &latents];
        let own = ["--model", model.to_str().unwrap()];
        let own = if more.contains(&"--model") { &[][..] } else { &own };
        self.good(&[&usual[..], &places, own, more].concat());
        crate::folder::values(&read(&self.path("latents"))["latents"])
    }
}

/// The largest difference between two lists.
fn distance(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

const LORA: &str = "{kind: lora, rank: 4, alpha: 8, targets: [to_q, to_k, to_v, to_out.0]}";

/// A LoRA means the same in every dialect, alone and merged, and is the same bytes each time.
#[test]
fn a_lora_in_every_dialect() {
    let own = Trained::new(LORA);
    let plain = own.latents(&[]);
    let mut made: Vec<Vec<f32>> = Vec::new();
    for (dialect, sign) in [
        ("diffusers", "transformer.blocks.0.attn1.to_q.lora_A.weight"),
        ("comfyui", "diffusion_model.blocks.0.self_attn.q.lora_A.weight"),
        ("kohya", "lora_unet_blocks_0_self_attn_q.lora_down.weight"),
    ] {
        let names = [0, 1, 2].map(|at| format!("{dialect}{at}.safetensors"));
        let all = names.map(|name| fs::read(own.export(&name, &["--dialect", dialect])).unwrap());
        assert!(all[0] == all[1] && all[1] == all[2], "{dialect}: the bytes differ");
        let file = SafeTensors::deserialize(&all[0]).unwrap();
        assert!(file.names().contains(&sign), "{:?}", file.names());
        made.push(own.latents(&["--lora", &own.text(&format!("{dialect}0.safetensors"))]));
        let merged = own.export(
            &format!("{dialect}-whole.safetensors"),
            &["--as", "file", "--dialect", dialect],
        );
        made.push(own.latents(&["--transformer", merged.to_str().unwrap()]));
    }
    let whole = read(&own.path("comfyui-whole.safetensors"));
    assert!(whole.contains_key("blocks.0.self_attn.q.weight"), "{:?}", whole.keys());
    let folder = own.export("folder", &["--as", "folder"]);
    made.push(own.latents(&["--model", folder.to_str().unwrap()]));
    assert!(distance(&made[0], &plain) > 0.01, "the LoRA changes nothing");
    for other in &made[1..] {
        assert!(distance(other, &made[0]) < 1e-4, "{}", distance(other, &made[0]));
    }
    let refused =
        run(&["export", &own.text("run"), "--output", "x", "--as", "folder", "--dialect", "kohya"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(words(&refused).contains("a diffusers folder has diffusers' names"));
}

/// Types, metadata and roles.
#[test]
fn types_and_what_a_file_says_of_itself() {
    let own = Trained::new("{kind: all}");
    let plain = own.latents(&["--transformer", &{
        own.export("f32.safetensors", &["--as", "file"]).to_str().unwrap().to_owned()
    }]);
    for (name, dtype, close) in [("bf16", Dtype::BF16, 0.1), ("f16", Dtype::F16, 0.02)] {
        let file = own.export(&format!("{name}.safetensors"), &["--as", "file", "--dtype", name]);
        assert!(read(&file).values().all(|(own, _, _)| *own == dtype), "{name}");
        let latents = own.latents(&["--transformer", file.to_str().unwrap()]);
        assert!(distance(&latents, &plain) < close, "{name}: {}", distance(&latents, &plain));
    }
    let bytes = fs::read(own.path("f32.safetensors")).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let facts = header.metadata().clone().unwrap();
    assert!(facts["base_model"].ends_with("wan-tiny"), "{facts:?}");
    for (key, part) in
        [("recipe", "\"finetune\""), ("step", "2"), ("role", "student"), ("family", "wan")]
    {
        assert!(facts[key].contains(part), "{key}: {:?}", facts[key]);
    }
    let folder = own.text("run");
    for (more, word) in [
        (&["--role", "critic"][..], "no role `critic` that learns; it has student"),
        (&["--as", "lora"], "did not train a LoRA"),
        (&["--ema"], "no running average of the student"),
    ] {
        let out = run(&[&["export", &folder, "--output", &own.text("no")], more].concat());
        assert_eq!(out.status.code(), Some(2));
        assert!(words(&out).contains(word), "{}", words(&out));
    }
    let nowhere = run(&["export", &own.text("nope"), "--output", &own.text("no")]);
    assert!(words(&nowhere).contains("there is no run or checkpoint"), "{}", words(&nowhere));
    let no_run = run(&["export", &own.text("clips"), "--output", &own.text("no")]);
    assert!(words(&no_run).contains("is neither a run"), "{}", words(&no_run));
}

/// Whoever may read a new file may read these.
#[cfg(unix)]
#[test]
fn the_umask_is_respected() {
    use std::os::unix::fs::PermissionsExt;
    let own = Trained::new(LORA);
    let mode = |name: &str| fs::metadata(own.path(name)).unwrap().permissions().mode() & 0o777;
    let program = assert_cmd::cargo::cargo_bin!("moviola");
    for (umask, file, folder) in
        [("022", 0o644, 0o755), ("027", 0o640, 0o750), ("077", 0o600, 0o700)]
    {
        for kind in ["lora", "file", "folder"] {
            let line = format!(
                "umask {umask} && exec '{}' export '{}' --as {kind} --output '{}'",
                program.display(),
                own.text("run"),
                own.text(&format!("{kind}{umask}"))
            );
            assert!(Command::new("sh").args(["-c", &line]).output().unwrap().status.success());
        }
        assert_eq!([mode(&format!("lora{umask}")), mode(&format!("file{umask}"))], [file; 2]);
        assert_eq!(mode(&format!("folder{umask}")), folder);
        let weights = format!("folder{umask}/transformer/diffusion_pytorch_model.safetensors");
        assert_eq!([mode(&weights), mode(&format!("folder{umask}/model_index.json"))], [file; 2]);
    }
}

/// The standard output holds the file and nothing else.
#[test]
fn a_file_goes_to_the_standard_output() {
    let run = Trained::new("{kind: lora, rank: 2, targets: [to_q]}");
    let (folder, named) = (run.text("run"), run.text("named.safetensors"));
    run.good(&["export", &folder, "--output", &named]);
    let out = crate::folder::run(&["export", &folder, "--output", "-"]);
    assert!(out.status.success(), "{}", words(&out));
    assert!(out.stdout == fs::read(&named).unwrap(), "it is not the file");
    let out = crate::folder::run(&["export", &folder, "--as", "folder", "--output", "-"]);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0));
    assert!(words(&out).contains("--output -: "), "{}", words(&out));
}

/// A name that is that of another kind of file is refused, and both ways out are named.
#[test]
fn names_and_kinds_agree() {
    let own = Trained::new("{kind: all}");
    for (name, kind, called, remedy) in [
        ("wrong.gguf", &["--as", "file"][..], "wrong.safetensors", "--as gguf"),
        ("wrong.GGUF", &["--as", "file"], "wrong.safetensors", "--as gguf"),
        ("wrong.safetensors", &["--as", "gguf"], "wrong.gguf", "--as file"),
        ("wrong.safetensors", &[], "/wrong,", "--as file"),
    ] {
        let (run_folder, output) = (own.text("run"), own.text(name));
        let out = run(&[&["export", &run_folder, "--output", &output], kind].concat());
        let said = words(&out);
        assert_eq!(out.status.code(), Some(2), "{name} {kind:?}: {said}");
        assert!(said.contains(called) && said.contains(remedy), "{name} {kind:?}: {said}");
        assert!(!own.path(name).exists(), "{name} {kind:?}");
    }
}
