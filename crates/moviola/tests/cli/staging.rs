//! Few steps at given levels, and clips made in two stages: recorded, made again, shared by ranks, refused.

use std::fs;
use std::path::Path;

use crate::folder::{Copy, goldens, read, run, values, write};

const ASKED: [&str; 10] = [
    "--prompt",
    "a golden fox",
    "--frames",
    "5",
    "--fps",
    "10",
    "--max-tokens",
    "16",
    "--seed",
    "3",
];
const SMALL: [&str; 4] = ["--height", "32", "--width", "32"];
const LARGE: [&str; 4] = ["--height", "64", "--width", "64"];

fn upsampler() -> String {
    goldens().join("ltx2-tiny-upsampler").to_str().unwrap().to_owned()
}

fn words(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Makes `out.gif`, then makes it again from its record, and compares every byte.
fn made_twice(copy: &Copy, asked: &[&str]) -> serde_json::Value {
    let done = copy.generate_to("out.gif", asked);
    assert!(done.status.success(), "{}", words(&done));
    let [record, again] = ["out.gif.json", "again.gif"].map(|name| copy.path(name));
    let replay = ["generate", "--replay", record.to_str().unwrap()];
    let done = run(&[&replay[..], &["--output", again.to_str().unwrap()]].concat());
    assert!(done.status.success(), "{}", words(&done));
    for ending in ["gif", "wav"] {
        let bytes = |name: &str| fs::read(copy.path(&format!("{name}.{ending}"))).unwrap();
        assert_eq!(bytes("again"), bytes("out"), "{ending}");
    }
    copy.record("out.gif")
}

/// The levels of the distilled checkpoints are recorded as they are, without guidance.
#[test]
fn the_few_steps_of_distilled_checkpoints_are_recorded_and_replayed() {
    let copy = Copy::of("ltx2-tiny");
    let record = made_twice(&copy, &[&ASKED[..], &SMALL, &["--sigmas", "distilled"]].concat());
    let levels = [1.0, 0.99375, 0.9875, 0.98125, 0.975, 0.909375, 0.725, 0.421875];
    assert_eq!(record["sigmas"], serde_json::json!(levels));
    assert_eq!((record["guidance"].as_f64(), record["steps"].as_u64()), (Some(1.0), Some(8)));
    assert_eq!(record["more_guidance"]["stg"].as_f64(), Some(0.0));
    let timesteps = record["timesteps"].as_array().unwrap();
    assert!(
        timesteps
            .iter()
            .zip(levels)
            .all(|(told, level)| { (told.as_f64().unwrap() - 1000.0 * level).abs() < 1e-3 })
    );
    // Levels of one's own are guided as the model is.
    let own = [&ASKED[..], &SMALL, &["--sigmas", "1,0.5", "--stg-blocks", "0"]].concat();
    let done = copy.generate_to("own.gif", &own);
    assert!(done.status.success(), "{}", words(&done));
    let record = copy.record("own.gif");
    assert_eq!(
        (record["sigmas"].clone(), record["guidance"].as_f64()),
        (serde_json::json!([1.0, 0.5]), Some(3.0))
    );
}

/// Two stages are recorded with what makes latents larger, and end in the same bytes.
#[test]
fn two_stages_are_recorded_and_replayed() {
    let copy = Copy::of("ltx2-tiny");
    let own = copy.path("given-upsampler");
    fs::create_dir(&own).unwrap();
    for file in ["config.json", "diffusion_pytorch_model.safetensors"] {
        fs::copy(goldens().join("ltx2-tiny-upsampler").join(file), own.join(file)).unwrap();
    }
    let image = goldens().join("pictures/photo.png");
    let latents = copy.path("latents.safetensors");
    let more = [
        "--sigmas",
        "1,0.9,0.5",
        "--guidance",
        "2",
        "--stg",
        "0",
        "--audio-stg",
        "0",
        "--upsampler",
        own.to_str().unwrap(),
        "--upsampler-adain",
        "0.5",
        "--image",
        image.to_str().unwrap(),
        "--keyframe",
        "3:",
        "--save-latents",
        latents.to_str().unwrap(),
    ];
    let keyframe = format!("3:{}", image.display());
    let more = more.map(|word| if word == "3:" { keyframe.as_str() } else { word });
    let record = made_twice(&copy, &[&ASKED[..], &LARGE, &more].concat());
    let enlarged = &record["enlarged"];
    assert_eq!(enlarged["from"], serde_json::json!([5, 32, 32]));
    assert_eq!(enlarged["sigmas"], serde_json::json!([0.909375, 0.725, 0.421875]));
    assert_eq!(enlarged["adain"].as_f64(), Some(0.5));
    assert_eq!(record["guidance"].as_f64(), Some(2.0));
    assert_eq!(read(&latents)["latents"].1, [1, 4, 2, 4, 4]);
    assert_eq!((record["height"].as_u64(), record["width"].as_u64()), (Some(64), Some(64)));
    // Another upsampler is not the one of the record.
    let config = fs::read_to_string(own.join("config.json")).unwrap();
    fs::write(own.join("config.json"), format!("{config}\n")).unwrap();
    let replay = copy.path("out.gif.json");
    let done = run(&["generate", "--replay", replay.to_str().unwrap(), "--output", "x.gif"]);
    assert!(words(&done).contains("the upsampler") && !done.status.success(), "{}", words(&done));
}

/// Writes a LoRA that changes one layer of the video's stream of the tiny folder.
fn write_lora(path: &Path) {
    let matrix = |rows: usize, columns: usize| {
        let bytes = (0..rows * columns).flat_map(|at| ((at % 7) as f32 * 0.2 - 0.6).to_le_bytes());
        (safetensors::Dtype::F32, vec![rows, columns], bytes.collect::<Vec<u8>>())
    };
    let layer = "transformer.transformer_blocks.0.attn1.to_q";
    let tensors = [
        (format!("{layer}.lora_A.weight"), matrix(2, 16)),
        (format!("{layer}.lora_B.weight"), matrix(16, 2)),
    ];
    write(path, &tensors.into());
}

/// A LoRA of the second stage is in that one alone: where it begins from noise, nothing of the first is left.
#[test]
fn a_lora_of_the_second_stage_is_in_that_one_alone() {
    let copy = Copy::of("ltx2-tiny");
    let path = |name: &str| copy.path(name).to_str().unwrap().to_owned();
    write_lora(&copy.path("given-lora.safetensors"));
    let (lora, latents, upsampler) = (path("given-lora.safetensors"), path("latents"), upsampler());
    let noise = |shape: Vec<usize>| {
        let value = |at: usize| ((at * 37 + 11) % 101) as f32 / 50.0 - 1.0;
        let bytes = (0..shape.iter().product::<usize>()).flat_map(|at| value(at).to_le_bytes());
        (safetensors::Dtype::F32, shape, bytes.collect::<Vec<u8>>())
    };
    let [video, sound] = [vec![1, 4, 2, 4, 4], vec![1, 2, 12, 4]].map(noise);
    let one = [("noise".to_owned(), video.clone()), ("audio_noise".to_owned(), sound.clone())];
    write(&copy.path("given-one"), &one.into());
    let two = [
        ("noise".to_owned(), noise(vec![1, 4, 2, 2, 2])),
        ("audio_noise".to_owned(), sound.clone()),
        ("enlarged_noise".to_owned(), video),
        ("enlarged_audio_noise".to_owned(), sound),
    ];
    write(&copy.path("given-two"), &two.into());
    let unguided = ["--guidance", "1", "--audio-guidance", "1", "--stg", "0", "--audio-stg", "0"];
    let unguided =
        [&unguided[..], &["--modality-guidance", "1"], &["--audio-modality-guidance", "1"]];
    let base = [&ASKED[..], &LARGE, &unguided.concat(), &["--save-latents", &latents]].concat();
    let made = |more: &[&str]| {
        let done = copy.generate_to("out.gif", &[&base[..], more].concat());
        assert!(done.status.success(), "{more:?}: {}", words(&done));
        values(&read(Path::new(&latents))["latents"])
    };
    let [one, two] = ["given-one", "given-two"].map(path);
    let plain = made(&["--sigmas", "1,0.5", "--noise", &one]);
    let changed = made(&["--sigmas", "1,0.5", "--noise", &one, "--lora", &lora]);
    assert_ne!(plain, changed);
    // From pure noise, the second stage is a run of its own.
    let stages = ["--sigmas", "1,0.7", "--noise", &two, "--upsampler", &upsampler];
    let from_noise = [&stages[..], &["--upsampler-sigmas", "1,0.5"]].concat();
    assert_eq!(made(&from_noise), plain);
    assert_eq!(made(&[&from_noise[..], &["--upsampler-lora", &lora]].concat()), changed);
    // The first stage is what it is without: at no strength, all is.
    let both = made(&stages);
    let none = format!("{lora}:0");
    assert_eq!(made(&[&stages[..], &["--upsampler-lora", &none]].concat()), both);
    assert_ne!(made(&[&stages[..], &["--upsampler-lora", &lora]].concat()), both);
    assert_ne!(
        made(&[&stages[..], &["--upsampler-lora", &lora]].concat()),
        made(&[&stages[..], &["--lora", &lora]].concat())
    );
    let all = [&ASKED[..], &LARGE, &stages, &["--upsampler-lora", &lora]].concat();
    let record = made_twice(&copy, &all);
    assert_eq!(record["enlarged"]["lora"][0]["file"], serde_json::json!(lora));
}

/// However ranks share the stages, the latents are those of one.
#[test]
fn ranks_share_both_stages() {
    let copy = Copy::of("ltx2-tiny");
    let latents = copy.path("latents.safetensors");
    let upsampler = upsampler();
    let given = ["--sigmas", "1,0.6", "--guidance", "3", "--count", "2", "--upsampler", &upsampler];
    let saved = ["--stg-blocks", "0", "--save-latents", latents.to_str().unwrap()];
    let base = [&ASKED[..], &LARGE, &given, &saved].concat();
    let made = |layout: &[&str]| {
        let done = copy.generate_to("out.gif", &[&base[..], layout].concat());
        assert!(done.status.success(), "{layout:?}: {}", words(&done));
        ["latents", "audio_latents"].map(|key| values(&read(&latents)[key]))
    };
    let want = made(&[]);
    for layout in [["--data", "2"], ["--cfg", "2"], ["--ulysses", "2"]] {
        assert_eq!(made(&layout), want, "{layout:?}");
    }
    assert_eq!(made(&["--offload"]), want);
    let staged = copy.generate_to("out.gif", &[&base[..], &["--pipefusion", "2"]].concat());
    let said = words(&staged);
    assert!(!staged.status.success() && said.contains("larger as a whole"), "{said}");
}

/// What would do nothing, or cannot be, is refused by the name of its flag.
#[test]
fn what_cannot_be_is_refused_by_its_flag() {
    let upsampler = upsampler();
    let cases: [(&str, &[&str], &str); 9] = [
        ("wan-tiny", &["--sigmas", "distilled"], "--sigmas: Wan has no few levels of its own"),
        (
            "wan-tiny",
            &["--upsampler", &upsampler],
            "--upsampler: there is none for the latents of Wan",
        ),
        ("pixart-tiny", &["--sigmas", "1,0.5"], "--sigmas: "),
        ("ltx2-tiny", &["--sigmas", "0.5,0.7"], "--sigmas: "),
        ("ltx2-tiny", &["--sigmas", "few"], "or the word distilled"),
        ("ltx2-tiny", &["--sigmas", "1,0.5", "--steps", "2"], "--steps"),
        ("ltx2-tiny", &["--upsampler-adain", "1"], "--upsampler"),
        (
            "ltx2-tiny",
            &["--upsampler", &upsampler, "--height", "48", "--width", "64"],
            "--height: ",
        ),
        (
            "ltx2-tiny",
            &["--upsampler", &upsampler, "--upsampler-tone-map", "2"],
            "--upsampler-tone-map: ",
        ),
    ];
    for (model, given, said) in cases {
        let copy = Copy::of(model);
        let done = copy.generate(&[&["--prompt", "a fox"], given].concat());
        let found = words(&done);
        assert!(!done.status.success() && found.contains(said), "{given:?}: {found}");
        assert!(copy.written().is_empty(), "{:?}", copy.written());
    }
}
