//! Bad input: one clear error, exit code 2, nothing written.

use std::fs;

use crate::folder::{Copy, run, write};

const TRANSFORMER: &str = "transformer/diffusion_pytorch_model.safetensors";
const PROMPT: [&str; 8] = ["--prompt", "a fox", "--steps", "2", "--height", "32", "--width", "32"];

/// Runs on a copy that `spoil` changed and expects every one of `words` in the one error line.
#[track_caller]
fn refuses(spoil: impl FnOnce(&Copy), arguments: &[&str], words: &[&str]) {
    let copy = Copy::of("pixart-tiny");
    spoil(&copy);
    // What the case is about takes the place of what every run has.
    let usual = PROMPT.chunks(2).filter(|pair| !arguments.contains(&pair[0])).flatten().copied();
    let output = copy.generate(&usual.chain(arguments.iter().copied()).collect::<Vec<_>>());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error:")).count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
    assert_eq!(copy.written(), Vec::<String>::new());
}

fn nothing(_: &Copy) {}

#[test]
fn folders_that_are_none() {
    let output =
        run(&["generate", "--model", "no/such/folder", "--prompt", "x", "--output", "x.png"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no/such/folder"));
    let index = |copy: &Copy| fs::remove_file(copy.path("model/model_index.json")).unwrap();
    refuses(index, &[], &["model_index.json"]);
    let vae = |copy: &Copy| fs::remove_dir_all(copy.path("model/vae")).unwrap();
    refuses(vae, &[], &["vae", "missing"]);
    let pipeline =
        |copy: &Copy| copy.replace("model_index.json", "PixArtAlphaPipeline", "OtherPipeline");
    refuses(pipeline, &[], &["OtherPipeline", "PixArtAlphaPipeline"]);
}

/// An index may say only what somebody reads.
#[test]
fn options_of_an_index_that_nobody_reads() {
    let option = |copy: &Copy| {
        copy.replace(
            "model_index.json",
            "\"_class_name\"",
            "\"timestep\": [1000],\n\"_class_name\"",
        );
    };
    refuses(option, &[], &["model_index.json", "`timestep`", "did you mean `timesteps`?"]);
}

/// A file that an argument names is told with that argument.
#[test]
fn files_that_are_not_there_are_told_with_their_argument() {
    for flag in ["--noise", "--prompt-embeds", "--transformer", "--lora"] {
        let copy = Copy::of("pixart-tiny");
        // Embeddings take the place of a prompt.
        let words = if flag == "--prompt-embeds" { &PROMPT[2..] } else { &PROMPT };
        let output = copy.generate(&[words, &[flag, "no/such.safetensors"]].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with(&format!("error: {flag}: ")), "{text}");
        assert!(text.contains("no/such.safetensors"), "{text}");
        assert_eq!(output.status.code(), Some(2));
    }
    // A folder is no file.
    for flag in ["--noise", "--transformer"] {
        let copy = Copy::of("pixart-tiny");
        let place = copy.path("model").display().to_string();
        let output = copy.generate(&[&PROMPT[..], &[flag, &place]].concat());
        let text = String::from_utf8_lossy(&output.stderr).to_lowercase();
        let words = format!("error: {flag}: cannot read {place}: is a directory").to_lowercase();
        assert!(text.starts_with(&words), "{text}");
    }
    let copy = Copy::of("wan-tiny-i2v");
    let output = copy.generate_to("out.gif", &["--prompt", "x", "--image", "no/such.png"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.starts_with("error: --image: ") && text.contains("no/such.png"), "{text}");
    refuses(nothing, &["--frames", "9007199254740993"], &["--frames: it is 9007199254740993"]);
}

#[test]
fn damaged_weights() {
    let truncate = |copy: &Copy| {
        let path = copy.path("model").join(TRANSFORMER);
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    refuses(truncate, &[], &[TRANSFORMER, "not a readable safetensors file"]);
    let corrupt = |copy: &Copy| fs::write(copy.path("model").join(TRANSFORMER), [255; 64]).unwrap();
    refuses(corrupt, &[], &[TRANSFORMER, "not a readable safetensors file"]);
    let empty = |copy: &Copy| fs::write(copy.path("model").join(TRANSFORMER), []).unwrap();
    refuses(empty, &[], &[TRANSFORMER, "not a readable safetensors file"]);
}

#[test]
fn tensors_missing_extra_or_misshapen() {
    let name = "transformer_blocks.1.attn1.to_q.weight";
    let missing = |copy: &Copy| {
        copy.rewrite(TRANSFORMER, |tensors| drop(tensors.remove(name).unwrap()));
    };
    refuses(missing, &[], &[name, "is not in"]);
    let extra = |copy: &Copy| {
        copy.rewrite(TRANSFORMER, |tensors| {
            let tensor = tensors[name].clone();
            tensors.insert("transformer_blocks.1.attn1.to_q.weigth".to_owned(), tensor);
        });
    };
    refuses(extra, &[], &["to_q.weigth", "nearest", name]);
    let misshapen = |copy: &Copy| {
        copy.rewrite(TRANSFORMER, |tensors| tensors.get_mut(name).unwrap().1.reverse());
        copy.rewrite(TRANSFORMER, |tensors| {
            let tensor = tensors.get_mut(name).unwrap();
            tensor.1 = vec![tensor.1.iter().product()];
        });
    };
    refuses(misshapen, &[], &[name, "shape"]);
}

#[test]
fn weights_that_are_not_finite_are_named() {
    let spoil = |file: &'static str, name: &'static str| {
        move |copy: &Copy| {
            copy.rewrite(file, |tensors| {
                tensors.get_mut(name).unwrap().2[..4].copy_from_slice(&f32::NAN.to_le_bytes());
            });
        }
    };
    let name = "transformer_blocks.0.ff.net.2.bias";
    refuses(spoil(TRANSFORMER, name), &[], &["not finite", name, "transformer at step 0"]);
    let name = "decoder.conv_in.bias";
    refuses(spoil("vae/diffusion_pytorch_model.safetensors", name), &[], &["not finite", name]);
}

#[test]
fn configs_that_ask_for_more() {
    let norm =
        |copy: &Copy| copy.replace("transformer/config.json", "ada_norm_single", "ada_norm_zero");
    refuses(norm, &[], &["norm_type", "ada_norm_zero", "ada_norm_single"]);
    let scheduler = |copy: &Copy| {
        let file = "scheduler/scheduler_config.json";
        copy.replace(file, "DPMSolverMultistepScheduler", "HeunDiscreteScheduler");
    };
    refuses(scheduler, &[], &["HeunDiscreteScheduler", "DDIMScheduler"]);
    let broken = |copy: &Copy| fs::write(copy.path("model/vae/config.json"), "{").unwrap();
    refuses(broken, &[], &["VAE", "config.json"]);
}

#[test]
fn requests_that_do_not_fit() {
    refuses(nothing, &["--height", "33"], &["height is 33", "multiple of 16", "nearest is 32"]);
    refuses(nothing, &["--width", "0"], &["width is 0", "nearest is 16"]);
    refuses(nothing, &["--steps", "0"], &["step"]);
    refuses(nothing, &["--guidance", "NaN"], &["guidance"]);
    refuses(nothing, &["--count", "0"], &["--count"]);
    refuses(nothing, &["--eta", "0.5"], &["eta", "DPMSolverMultistepScheduler"]);
    refuses(nothing, &["--threads", "0"], &["--threads"]);
    refuses(nothing, &["--device", "cuda:0"], &["cuda", "--features cuda"]);
    refuses(nothing, &["--device", "abacus"], &["abacus"]);
    refuses(nothing, &["--max-tokens", "0"], &["--max-tokens"]);
    refuses(nothing, &["--resolution-binning"], &["--resolution-binning", "not known"]);
}

/// What another argument leaves nothing to do for.
#[test]
fn arguments_that_would_do_nothing() {
    for (flag, value) in
        [("--negative", Some("fog")), ("--max-tokens", Some("9")), ("--clean-caption", None)]
    {
        let copy = Copy::of("pixart-tiny");
        let own: Vec<&str> = [flag].into_iter().chain(value).collect();
        let embeds = ["--prompt-embeds", "no/such.safetensors"];
        let output = copy.generate(&[&PROMPT[2..], &embeds, &own].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with(&format!("error: {flag}: the captions are given")), "{text}");
        assert_eq!(output.status.code(), Some(2));
    }
    let ddim = |copy: &Copy| {
        let config = r#"{ "_class_name": "DDIMScheduler", "num_train_timesteps": 1000 }"#;
        fs::write(copy.path("model/scheduler/scheduler_config.json"), config).unwrap();
    };
    let few = ["--solver", "renoise", "--timesteps", "999", "--eta", "0.5"];
    let copy = Copy::of("pixart-tiny");
    ddim(&copy);
    let small = [&PROMPT[..2], &PROMPT[4..]].concat();
    let output = copy.generate(&[&small, &few[..]].concat());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.starts_with("error: --eta: the few steps of a distilled model"), "{text}");
    let output = copy.generate(&[&small, &["--eta", "0.5", "--steps", "2"][..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What an argument needs is asked for whatever else is given: clap forgives it where that excludes a third.
#[test]
fn arguments_that_need_another() {
    refuses(nothing, &["--sample", "3"], &["--sample", "--replay FILE.json"]);
    let copy = Copy::of("pixart-tiny");
    for more in [&["--solver", "renoise", "--steps", "2"][..], &["--solver", "renoise"]] {
        let output = copy.generate(&[&PROMPT[..2], &PROMPT[4..], more].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {text}");
        assert!(text.contains("--solver renoise steps through --timesteps"), "{more:?}: {text}");
    }
    for wrong in [
        &["--machine", "--tensors"][..],
        &["--machine", "--json"],
        &["--threads", "2", copy.path("model").to_str().unwrap()],
    ] {
        let output = run(&[&["inspect"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty(), "{wrong:?}");
    }
}

/// Timesteps that a folder records wrongly are the folder's fault, those of an argument the argument's.
#[test]
fn timesteps_are_told_with_where_they_come_from() {
    let record = |copy: &Copy| {
        let timesteps = "\"timesteps\": [20, 500],\n\"_class_name\"";
        copy.replace("model_index.json", "\"_class_name\"", timesteps);
    };
    let copy = Copy::of("pixart-tiny");
    record(&copy);
    let output = copy.generate(&[&PROMPT[..2], &PROMPT[4..]].concat());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.starts_with("error: the timesteps that the model records: "), "{text}");
    let given = ["--solver", "renoise", "--timesteps", "20,500"];
    let output = copy.generate(&[&PROMPT[..2], &PROMPT[4..], &given].concat());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.starts_with("error: --timesteps: "), "{text}");
}

#[test]
fn noise_of_another_shape() {
    let copy = Copy::of("pixart-tiny");
    let noise = copy.path("given.safetensors");
    let tensor = (safetensors::Dtype::F32, vec![1, 4, 3, 3], vec![0; 4 * 36]);
    write(&noise, &[("noise".to_owned(), tensor.clone())].into());
    let output = copy.generate(&[&PROMPT[..], &["--noise", noise.to_str().unwrap()]].concat());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("[1, 4, 3, 3]") && text.contains("[1, 4, 4, 4]"), "{text}");
    write(&noise, &[("nose".to_owned(), tensor)].into());
    let output = copy.generate(&[&PROMPT[..], &["--noise", noise.to_str().unwrap()]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no tensor `noise`"));
    assert_eq!(copy.written(), Vec::<String>::new());
}

#[test]
fn outputs_that_cannot_be() {
    let copy = Copy::of("pixart-tiny");
    let model = copy.path("model");
    for (output, word) in [
        ("model/model_index.json/out.png", "model_index.json"),
        ("out.tiff", ".png"),
        (".gif", "is an extension without a name, like that of clip.gif"),
        ("model", "not empty"),
    ] {
        let path = copy.path(output);
        let arguments =
            ["generate", "--model", model.to_str().unwrap(), "--output", path.to_str().unwrap()];
        let output = run(&[&arguments[..], &PROMPT[..]].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(copy.written(), Vec::<String>::new());
}
