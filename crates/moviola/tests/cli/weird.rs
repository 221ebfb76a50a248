//! Input that nobody means to give: still one clear line, exit code 2 and nothing written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::folder::{Copy, goldens, run, write};

const SMALL: [&str; 6] = ["--steps", "2", "--height", "32", "--width", "32"];

/// The one line of an error, which must hold every one of `words`.
#[track_caller]
fn one_line(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error:")).count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}

/// A run on `copy` that must not get anywhere.
#[track_caller]
fn refuses(copy: &Copy, arguments: &[&str], words: &[&str]) {
    one_line(&copy.generate(arguments), words);
    assert_eq!(copy.written(), Vec::<String>::new(), "{arguments:?}");
}

/// A small run with a prompt, in which `arguments` take the place of the usual ones.
#[track_caller]
fn refuses_with(copy: &Copy, arguments: &[&str], words: &[&str]) {
    let usual = SMALL.chunks(2).filter(|pair| !arguments.contains(&pair[0])).flatten().copied();
    let prompt = ["--prompt", "a fox"];
    let all: Vec<&str> = prompt.into_iter().chain(usual).chain(arguments.iter().copied()).collect();
    refuses(copy, &all, words);
}

/// A file that a user might give.
fn given(copy: &Copy, bytes: &[u8]) -> String {
    let path = copy.path("given-file");
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Sets one key of a JSON file of the model.
fn set(copy: &Copy, file: &str, key: &str, value: Value) {
    let path = copy.path("model").join(file);
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config[key] = value;
    fs::write(path, config.to_string()).unwrap();
}

#[test]
fn files_of_prompts() {
    let copy = Copy::of("pixart-tiny");
    let prompts = |words: &[&str]| {
        let path = copy.path("given-file");
        refuses(&copy, &[&["--prompts", path.to_str().unwrap()], &SMALL[..]].concat(), words);
    };
    prompts(&["given-file", "No such file"]);
    given(&copy, b"");
    prompts(&["there is no prompt"]);
    given(&copy, "\u{feff}\n \t\n\r\n".as_bytes());
    prompts(&["there is no prompt"]);
    given(&copy, b"a fox\n\x1b[2J");
    prompts(&["given-file", "it is no text"]);
    fs::remove_file(copy.path("given-file")).unwrap();
    fs::create_dir(copy.path("given-file")).unwrap();
    prompts(&["given-file", "directory"]);
}

/// The mark at the beginning of a file is no part of the first prompt.
#[test]
fn a_byte_order_mark_is_not_a_prompt() {
    let copy = Copy::of("pixart-tiny");
    let file = given(&copy, "\u{feff}a fox\n".as_bytes());
    let output = copy.generate(&[&["--prompts", &file], &SMALL[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(copy.record("out.png")["prompt"], "a fox");
}

#[test]
fn numbers_out_of_range() {
    let copy = Copy::of("pixart-tiny");
    let largest = u64::MAX.to_string();
    for (arguments, words) in [
        (&["--height", "0"][..], &["height is 0"][..]),
        (&["--height", "16400"], &["--height: it is 16400"]),
        (&["--width", "18446744073709551600"], &["--width: it is 18446744073709551600"]),
        (&["--width", &largest], &["--width: it is 18446744073709551615"]),
        (&["--height", "-16"], &["-1"]),
        (&["--height", "99999999999999999999"], &["--height"]),
        (&["--steps", "0"], &["cannot denoise in 0 steps"]),
        (&["--steps", &largest], &["cannot denoise in 18446744073709551615 steps"]),
        (&["--count", "0"], &["nothing to make"]),
        (&["--count", &largest], &["--count: 18446744073709551615 for"]),
        (&["--count", &largest, "--prompt", "an owl"], &["for 2 prompt(s)"]),
        (&["--count", "10001"], &["--count: 10001 for"]),
        (&["--guidance", "NaN"], &["guidance scale NaN"]),
        (&["--guidance", "inf"], &["guidance scale inf"]),
        (&["--eta", "NaN"], &["eta NaN"]),
        (&["--max-tokens", &largest], &["--max-tokens: it is 18446744073709551615"]),
        (&["--threads", "1000000"], &["--threads is 1000000"]),
        (&["--seed", "-2"], &["-2", "a seed is a whole number"]),
        (&["--device", "vulkan:1"], &["vulkan:1"]),
    ] {
        refuses_with(&copy, arguments, words);
    }
}

/// Binning chooses another size to generate, so the size asked for is checked by itself.
#[test]
fn sizes_to_resize_to() {
    let copy = Copy::of("pixart-tiny-conditions");
    let prompt = ["--prompt", "a fox", "--steps", "1", "--resolution-binning"];
    for (size, word) in [(["0", "32"], "--height: it is 0"), (["32", "0"], "--width: it is 0")] {
        let size = ["--height", size[0], "--width", size[1]];
        refuses(&copy, &[&prompt[..], &size].concat(), &[word]);
    }
}

#[test]
fn files_of_tensors() {
    let copy = Copy::of("pixart-tiny");
    let folder = copy.path("model").to_str().unwrap().to_owned();
    let file = given(&copy, b"these are no tensors");
    for option in ["--noise", "--prompt-embeds"] {
        let run = |words: &[&str]| match option {
            "--noise" => refuses_with(&copy, &[option, &file], words),
            _ => refuses(&copy, &[&[option, &file], &SMALL[..]].concat(), words),
        };
        run(&["given-file", "not a readable safetensors file"]);
        fs::write(&file, [255; 64]).unwrap();
        run(&["given-file", "not a readable safetensors file"]);
        fs::write(&file, []).unwrap();
        run(&["given-file", "not a readable safetensors file"]);
    }
    refuses_with(&copy, &["--noise", &folder], &["directory"]);
    refuses_with(&copy, &["--noise", "no/such/file"], &["no/such/file"]);
}

#[test]
fn tensors_that_cannot_be_used() {
    use safetensors::Dtype;
    let copy = Copy::of("pixart-tiny");
    let path = copy.path("given-file");
    let file = path.to_str().unwrap();
    let noise = |dtype, bytes: Vec<u8>, words: &[&str]| {
        write(&path, &[("noise".to_owned(), (dtype, vec![1, 4, 4, 4], bytes))].into());
        refuses_with(&copy, &["--noise", file], words);
    };
    let mut values = vec![0; 256];
    values[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
    noise(Dtype::F32, values, &["not finite at index 2"]);
    noise(Dtype::I8, vec![0; 64], &["I8", "not a number type we read"]);

    let embeds = |shape: Vec<usize>, words: &[&str]| {
        let bytes = vec![0; 4 * shape.iter().product::<usize>()];
        write(&path, &[("prompt_embeds".to_owned(), (Dtype::F32, shape, bytes))].into());
        let arguments = ["--prompt-embeds", file, "--guidance", "1"];
        refuses(&copy, &[&arguments[..], &SMALL].concat(), words);
    };
    embeds(vec![1, 0, 20], &["has no tokens"]);
    embeds(vec![0, 3, 20], &["nothing to make"]);
    embeds(vec![1, 3, 19], &["width 19", "takes 20"]);
    embeds(vec![3, 20], &["[3, 20]", "3 dims"]);
}

#[test]
fn indices_of_other_forms() {
    let index = "model_index.json";
    let spoilt = |text: &[u8], words: &[&str]| {
        let copy = Copy::of("pixart-tiny");
        fs::write(copy.path("model").join(index), text).unwrap();
        refuses_with(&copy, &[], words);
    };
    spoilt(b"", &[index, "EOF"]);
    spoilt(b"[1, 2]", &[index, "expected a map"]);
    spoilt(b"{\"_class_name\": 3}", &[index, "_class_name"]);
    spoilt(b"{\"_class_name\": \"\xff\"}", &[index, "UTF-8"]);
    spoilt(b"{\"_class_name\": \"PixArtAlphaPipeline\"}", &[index, "no component"]);
    for value in [json!(3), json!(["diffusers"]), json!([null, null]), json!({"a": 1})] {
        let copy = Copy::of("pixart-tiny");
        set(&copy, index, "vae", value);
        refuses_with(&copy, &[], &[index, "no component `vae`"]);
    }
    let copy = Copy::of("pixart-tiny");
    fs::remove_file(copy.path("model").join(index)).unwrap();
    fs::create_dir(copy.path("model").join(index)).unwrap();
    refuses_with(&copy, &[], &["no model_index.json"]);
}

#[test]
fn sizes_of_models() {
    let cases = [
        ("transformer/config.json", "num_layers"),
        ("transformer/config.json", "num_attention_heads"),
        ("transformer/config.json", "attention_head_dim"),
        ("transformer/config.json", "patch_size"),
        ("transformer/config.json", "sample_size"),
        ("transformer/config.json", "in_channels"),
        ("text_encoder/config.json", "num_layers"),
        ("text_encoder/config.json", "num_heads"),
        ("text_encoder/config.json", "d_model"),
        ("text_encoder/config.json", "vocab_size"),
        ("vae/config.json", "layers_per_block"),
        ("vae/config.json", "latent_channels"),
        ("vae/config.json", "norm_num_groups"),
    ];
    for (file, key) in cases {
        let copy = Copy::of("pixart-tiny");
        for value in [json!(0), json!(u64::MAX)] {
            set(&copy, file, key, value);
            refuses_with(&copy, &[], &[key]);
        }
        for (value, word) in [(json!(-1), "-1"), (json!("two"), "two"), (json!(1.5), "1.5")] {
            set(&copy, file, key, value);
            refuses_with(&copy, &[], &["config", word]);
        }
    }
}

#[test]
fn parts_that_do_not_make_a_picture() {
    let copy = Copy::of("pixart-tiny");
    set(&copy, "vae/config.json", "out_channels", json!(4));
    refuses_with(&copy, &[], &["out_channels of vae is 4", "a picture has 3"]);
    copy.rewrite("vae/diffusion_pytorch_model.safetensors", |tensors| {
        for name in ["decoder.conv_out.weight", "decoder.conv_out.bias"] {
            let (_, shape, bytes) = tensors.get_mut(name).unwrap();
            bytes.extend_from_within(..bytes.len() / 3);
            shape[0] = 4;
        }
    });
    refuses_with(&copy, &[], &["out_channels of vae is 4", "a picture has 3"]);
    let copy = Copy::of("pixart-tiny");
    set(&copy, "vae/config.json", "sample_size", json!(0));
    refuses_with(&copy, &["--tile-vae"], &["a VAE tile", "0 pixels"]);
}

#[test]
fn schedules_of_other_forms() {
    let file = "scheduler/scheduler_config.json";
    let class = "\"_class_name\": \"DPMSolverMultistepScheduler\"";
    for (text, word) in [
        ("[]", "a JSON object"),
        ("", "not valid JSON"),
        ("{\"_class_name\": 3}", "_class_name"),
        (&format!("{{{class}, \"num_train_timesteps\": 0}}"), "num_train_timesteps"),
        (&format!("{{{class}, \"num_train_timesteps\": -5}}"), "num_train_timesteps"),
        (&format!("{{{class}, \"beta_start\": \"x\"}}"), "beta_start"),
        (&format!("{{{class}, \"beta_end\": 7}}"), "beta"),
        (&format!("{{{class}, \"solver_order\": NaN}}"), "solver_order"),
    ] {
        let copy = Copy::of("pixart-tiny");
        fs::write(copy.path("model").join(file), text).unwrap();
        refuses_with(&copy, &[], &["scheduler", word]);
    }
}

/// Whatever stands in the way is found before the work, not after it.
#[test]
fn places_that_are_taken() {
    let copy = Copy::of("pixart-tiny");
    let path = |name: &str| copy.path(name).to_str().unwrap().to_owned();
    let taken = |name: &str, arguments: &[&str]| {
        fs::create_dir(copy.path(name)).unwrap();
        let usual = ["--prompt", "a fox"].iter().chain(&SMALL).copied();
        let output = copy.generate(&usual.chain(arguments.iter().copied()).collect::<Vec<_>>());
        one_line(&output, &[name, "cannot write"]);
        assert_eq!(copy.written(), [name]);
        fs::remove_dir(copy.path(name)).unwrap();
    };
    taken("out.png", &[]);
    taken("out.png.json", &[]);
    taken("out-001.png", &["--count", "2"]);
    taken("out-000.png.json", &["--count", "2"]);
    taken("latents", &["--save-latents", &path("latents")]);
    let folder = copy.path("").to_str().unwrap().to_owned();
    let around = format!("{folder}/model/../out.png.json");
    refuses_with(&copy, &["--save-latents", &path("out.png")], &["would be overwritten"]);
    refuses_with(&copy, &["--save-latents", &around], &["would be overwritten"]);
    refuses_with(&copy, &["--save-latents", "no/such/.."], &["cannot write", "no/such/.."]);
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere() {
    let link = |from: &Path, to: &Path| std::os::unix::fs::symlink(from, to).unwrap();
    let copy = Copy::of("pixart-tiny");
    let circle = copy.path("given-circle");
    link(&circle, &circle);
    let path = circle.to_str().unwrap();
    refuses_with(&copy, &["--noise", path], &["given-circle"]);
    refuses(&copy, &[&["--prompts", path], &SMALL[..]].concat(), &["given-circle"]);
    let output = copy.path("out.png");
    let arguments = ["--model", path, "--prompt", "a fox", "--output", output.to_str().unwrap()];
    one_line(&run(&[&["generate"], &arguments[..]].concat()), &["there is no folder"]);
    one_line(&run(&["inspect", path]), &["given-circle"]);
    let replaced = |file: &str, word: &str| {
        let copy = Copy::of("pixart-tiny");
        let file = copy.path("model").join(file);
        fs::remove_file(&file).unwrap();
        link(&file, &file);
        refuses_with(&copy, &[], &[word]);
    };
    replaced("model_index.json", "no model_index.json");
    replaced("transformer/config.json", "config.json is missing");
    replaced("vae/diffusion_pytorch_model.safetensors", "vae holds neither");
}

/// A path need not be text: the picture and its record are written all the same.
#[cfg(target_os = "linux")]
#[test]
fn paths_that_are_not_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let copy = Copy::of("pixart-tiny");
    let path = |name: &[u8]| copy.path("").join(OsStr::from_bytes(name));
    let tensor = (safetensors::Dtype::F32, vec![2, 4, 4, 4], vec![0; 512]);
    write(&path(b"given-\xff"), &[("noise".to_owned(), tensor)].into());
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("moviola"));
    command.args(["generate", "--prompt", "a fox", "--count", "2"]).args(SMALL);
    command.arg("--model").arg(copy.path("model")).arg("--noise").arg(path(b"given-\xff"));
    let output = command.arg("--output").arg(path(b"\xfe.png")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in [&b"\xfe-000.png"[..], b"\xfe-000.png.json", b"\xfe-001.png", b"\xfe-001.png.json"]
    {
        assert!(path(name).is_file(), "{}", String::from_utf8_lossy(name));
    }
}

#[test]
fn what_inspect_cannot_tell() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let inspect = |name: &str, words: &[&str]| {
        one_line(&run(&["inspect", path(name).to_str().unwrap()]), words);
    };
    inspect("nothing", &["there is no file or folder", "nothing"]);
    inspect("nothing.json", &["nothing.json", "No such file"]);
    fs::write(path("text.txt"), "x").unwrap();
    inspect("text.txt", &["text.txt is neither"]);
    fs::write(path("bad.json"), [255]).unwrap();
    inspect("bad.json", &["bad.json", "UTF-8"]);
    fs::write(path("bad.safetensors"), "x").unwrap();
    inspect("bad.safetensors", &["bad.safetensors", "not a readable safetensors file"]);
    fs::create_dir(path("empty.safetensors")).unwrap();
    inspect("empty.safetensors", &["empty.safetensors is neither"]);

    // A list of shards that cannot be read is not the same as a component without weights.
    let copy = Copy::of("pixart-tiny");
    let vae = copy.path("model/vae");
    fs::remove_file(vae.join("diffusion_pytorch_model.safetensors")).unwrap();
    let list = vae.join("diffusion_pytorch_model.safetensors.index.json");
    let model = copy.path("model");
    fs::write(&list, r#"{"weight_map": {"a": "part.safetensors"}}"#).unwrap();
    one_line(&run(&["inspect", model.to_str().unwrap()]), &["part.safetensors is missing"]);
    fs::write(&list, r#"{"weight_map": [1]}"#).unwrap();
    one_line(&run(&["inspect", model.to_str().unwrap()]), &["index.json", "expected a map"]);
}

/// `moviola inspect … | head -0`: whoever reads may stop.
#[test]
fn a_reader_that_stops_is_no_error() {
    let model = goldens().join("pixart-tiny");
    let program = assert_cmd::cargo::cargo_bin!("moviola");
    let mut command = Command::new(program);
    command.arg("inspect").arg(model).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
